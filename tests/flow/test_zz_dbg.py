import sys; sys.path[:0]=["/work/main/tests"]
import pytest, psycopg
from builders import *
from lakebed.registry.create import open_registry
def test_x(databases):
    u=databases.new("postgresql")
    r=open_registry(u); t=make_table(r)
    for i in range(8): publish(r,t,fake_file(i))
    print(r.query("SELECT name, left(statement,40) FROM pg_prepared_statements"), len(r._idle), r._idle[0].raw.prepare_threshold)
    r.close()
