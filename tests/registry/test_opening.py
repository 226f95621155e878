from __future__ import annotations

from contextlib import closing

import pytest

from builders import ORDERS, make_table
from lakebed.core.errors import RegistryMissingError
from lakebed.registry.open import open_registry
from lakebed.registry.tables.lake_tables import require_table


def test_a_registry_that_must_exist_is_opened(url: str) -> None:
    with closing(open_registry(url)) as registry:
        made = make_table(registry)

    with closing(open_registry(url, create=False)) as registry:
        assert require_table(registry, ORDERS).table_id == made.table_id


def test_a_registry_that_must_exist_is_not_created(empty_url: str) -> None:
    for _ in range(2):
        with pytest.raises(RegistryMissingError, match="there is no registry at"):
            open_registry(empty_url, create=False)
