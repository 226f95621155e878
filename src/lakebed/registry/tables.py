"""The registry's tables, declared once: DDL, the journal's triggers and the migration tests all start here.

Times are UTC microseconds. Row ids of journaled tables are drawn under the lake table's lock
(`table_seq.last_id`), so they rise in commit order and are never reused.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy import UniqueConstraint as Unique

from lakebed.registry.transaction import ID_BITS

METADATA = MetaData()
_KEY = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER is SQLite's rowid


def _int(name: str, **options: Any) -> Column[int]:
    return Column(name, BigInteger, nullable=False, **options)


def _maybe_int(name: str, **options: Any) -> Column[int]:
    return Column(name, BigInteger, nullable=True, **options)


def _text(name: str, **options: Any) -> Column[str]:
    return Column(name, Text, nullable=False, **options)


def _maybe_text(name: str) -> Column[str]:
    return Column(name, Text, nullable=True)


def _key(name: str = "id", *, drawn: bool = True) -> Column[int]:
    return Column(name, _KEY, primary_key=True, autoincrement=not drawn)


def _one_of(column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


TABLE_SEQ = Table(
    "table_seq",
    METADATA,
    _key("table_id", drawn=False),
    _int("last_seq", server_default="0"),
    _int("purged_seq", server_default="0"),
    _int("last_slot", server_default="0"),
    _int("last_id", server_default="0"),
    _int("horizon_seq", server_default="0"),  # files retired up to here may be gone: `as_of` reaches no further back
)

TABLES = Table(
    "tables",
    METADATA,
    _key(),
    _text("database"),
    _text("name"),
    _text("kind"),
    _maybe_int("event_time_field"),
    _int("row_count", server_default="0"),
    _int("file_count", server_default="0"),
    _int("total_size", server_default="0"),
    _int("last_modified"),
    _int("last_group", server_default="0"),
    _int("committed_group", server_default="0"),
    _maybe_int("current_snapshot_id"),
    _text("state", server_default="ok"),
    _int("created_at"),
    _maybe_int("dropped_at"),
    _one_of("kind", "table", "view_set"),
    _one_of("state", "ok", "degraded"),
    CheckConstraint("row_count >= 0 AND file_count >= 0 AND total_size >= 0", name="tables_counters"),
    CheckConstraint("committed_group <= last_group", name="tables_groups"),
    Index("tables_name", "database", "name", unique=True, **_where("dropped_at IS NULL")),
)

TABLE_METADATA = Table(
    "table_metadata",
    METADATA,
    _key(),
    _int("table_id"),
    _int("schema_version"),
    Column("schema", LargeBinary, nullable=False),
    _text("schema_hash"),
    _text("standing"),
    _text("storage_engine"),
    _text("engine_config"),
    _text("format"),
    _text("compression"),
    _text("partition_by"),
    _text("sort_by"),
    _text("properties"),
    _int("last_modified"),
    _int("created_at"),
    _int("updated_at"),
    _one_of("standing", "serving", "readable", "staged", "incompatible"),
    Unique("table_id", "schema_version", name="table_metadata_version"),
    Unique("table_id", "schema_hash", name="table_metadata_hash"),
    Index("table_metadata_serving", "table_id", unique=True, **_where("standing = 'serving'")),
)

PARTITION_SCOPES = Table(
    "partition_scopes",
    METADATA,
    _key(drawn=False),
    _int("table_id"),
    _text("view_instance_id"),
    _text("schema_hash"),
    Unique("table_id", "view_instance_id", "schema_hash", name="partition_scopes_key"),
)

PARTITIONS = Table(
    "partitions",
    METADATA,
    _key(),
    _int("table_id"),
    _int("scope_id"),
    _text("view_instance_id"),
    _int("begin_insert_time"),
    _int("end_insert_time"),
    _maybe_int("min_event_time"),
    _maybe_int("max_event_time"),
    _text("schema_hash"),
    _maybe_text("source_data_hash"),
    _maybe_text("lookup_hash"),
    _text("fingerprint"),
    _int("num_rows"),
    _int("file_count"),
    _int("partition_format_version"),
    _int("updated"),
    CheckConstraint("begin_insert_time < end_insert_time", name="partition_range"),
    CheckConstraint("num_rows >= 0", name="partition_rows"),
    CheckConstraint("(num_rows = 0) = (file_count = 0)", name="partition_emptiness"),
    CheckConstraint("(min_event_time IS NULL) = (max_event_time IS NULL)", name="partition_event_bounds"),
    CheckConstraint("num_rows > 0 OR min_event_time IS NULL", name="partition_empty_event_range"),
    CheckConstraint("min_event_time <= max_event_time", name="partition_event_order"),
    # scope = (table, instance, schema): narrow, and what the overlap constraint of both databases stands on
    Unique("scope_id", "begin_insert_time", "end_insert_time", name="partition_key"),
)

TABLE_FILES = Table(
    "table_files",
    METADATA,
    _key(),
    _int("table_id"),
    _int("partition_id"),
    _text("file_name"),
    _text("file_path"),
    _int("file_size"),
    _text("file_type"),
    _text("partition_path"),
    _int("row_count"),
    _text("checksum"),
    _text("checksum_kind"),
    Column("is_compressed", SmallInteger, nullable=False),
    _text("schema_hash"),
    _int("added_seq"),
    _maybe_int("retired_seq"),
    _maybe_int("added_group"),
    _maybe_int("removed_group"),
    _int("created_at"),
    _int("modified_at"),
    _one_of("file_type", "parquet", "json"),
    CheckConstraint("file_size > 0 AND row_count > 0", name="table_files_not_empty"),
    CheckConstraint("retired_seq > added_seq", name="table_files_lifetime"),
    CheckConstraint("removed_group > added_group", name="table_files_groups"),
    Unique("file_path", name="table_files_path"),
    Index("table_files_partition", "partition_id"),
    # covers planning: live paths are read from the index alone (SQLite counts the condition's column as one to be covered)
    Index("table_files_live", "table_id", "partition_path", "schema_hash", "file_path", "retired_seq", **_where("retired_seq IS NULL")),
    # retired files stay in it until their rows go: sealing looks at few of them, and retiring need not touch it
    Index("table_files_pending", "table_id", **_where("added_group IS NULL")),
    # a commit to Iceberg reads the files of its own step, not those of the whole lake
    Index("table_files_added_group", "table_id", "added_group", **_where("added_group IS NOT NULL")),
    Index("table_files_removed_group", "table_id", "removed_group", **_where("removed_group IS NOT NULL")),
)

PARTITION_METADATA = Table(
    "partition_metadata",
    METADATA,
    Column("file_path", Text, ForeignKey("table_files.file_path", name="partition_metadata_file"), primary_key=True),
    _int("table_id"),
    Column("metadata", LargeBinary, nullable=False),
    _int("insert_time"),
    _int("partition_format_version"),
    _int("footer_length"),
    _int("num_rows"),
    _text("checksum"),
    Index("partition_metadata_old", "partition_format_version", **_where("partition_format_version < 2")),
)

FILE_COLUMNS = Table(
    "file_columns",
    METADATA,
    # no foreign key: checking it for every column of every file is work on each registration; the checker compares
    Column("file_id", BigInteger, primary_key=True, autoincrement=False),
    Column("field_id", BigInteger, primary_key=True, autoincrement=False),
    _maybe_int("null_count"),
    _maybe_int("value_count"),
    Column("lower", LargeBinary, nullable=True),
    Column("upper", LargeBinary, nullable=True),
    sqlite_with_rowid=False,
)

FILE_RANGES = Table(
    "file_ranges",
    METADATA,
    _key(),  # file id * 8 + index slot
    _int("scope"),
    _int("level"),
    _int("prefix"),
    Index("file_ranges_bin", "scope", "level", "prefix"),
)

# what an adoption or an import did not register, and a person has yet to look at: never an orphan
LEFT_OUT_FILES = Table(
    "left_out_files",
    METADATA,
    Column("file_path", Text, primary_key=True),
    _int("file_size"),
    _int("table_id"),
    _text("source"),
    _text("reason"),
    _int("recorded_at"),
    sqlite_with_rowid=False,
)

# the kind of change behind a group that was not sealed from pending files: only a rewrite leaves the rows as they were
TABLE_GROUPS = Table(
    "table_groups",
    METADATA,
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column("group_no", BigInteger, primary_key=True, autoincrement=False),
    _text("kind"),
    sqlite_with_rowid=False,
)

# which version of a table served from a journal number on: the schema that reading as of that number gives
SERVING_HISTORY = Table(
    "serving_history",
    METADATA,
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    _int("schema_version"),
    _int("group_no"),
    _int("at"),
    sqlite_with_rowid=False,
)

TABLE_STATS = Table(
    "table_stats",
    METADATA,
    _key(),
    _int("table_id"),
    _text("partition_path"),
    _int("row_count"),
    _int("file_count"),
    _int("small_file_count"),
    _int("total_size"),
    _int("last_modified"),
    _int("created_at"),
    _int("updated_at"),
    CheckConstraint("row_count >= 0 AND file_count >= 0 AND small_file_count >= 0 AND total_size >= 0", name="table_stats_counters"),
    Unique("table_id", "partition_path", name="table_stats_path"),
)

TABLE_SNAPSHOTS = Table(
    "table_snapshots",
    METADATA,
    _key(),
    _int("table_id"),
    _int("snapshot_id"),
    _maybe_int("parent_id"),
    _int("sequence_number"),
    _int("group_no"),
    _int("timestamp_ms"),
    _text("manifest_list"),
    _text("metadata_location"),
    _text("summary"),
    _int("schema_id"),
    _text("operation"),
    _text("trigger"),
    _maybe_int("expired_at"),
    Unique("table_id", "snapshot_id", name="table_snapshots_id"),
)

TEMPORARY_FILES = Table(
    "temporary_files",
    METADATA,
    Column("file_path", Text, primary_key=True),
    _int("file_size"),
    _int("table_id"),
    _int("retired_at"),
    _int("expiration"),
    _text("reason"),
    _int("attempts", server_default="0"),
    _maybe_int("claimed_until"),
    Index("temporary_files_expiration", "expiration"),
    sqlite_with_rowid=False,
)

OPERATIONS = Table(
    "operations",
    METADATA,
    Column("op_id", Text, primary_key=True),
    _int("table_id"),
    _text("kind"),
    _text("state"),
    _maybe_text("staging_path"),
    _maybe_text("mode"),
    _maybe_text("app_id"),
    _maybe_int("batch_id"),
    _maybe_text("query_id"),  # of the streaming query, that is of its checkpoint
    _maybe_text("result"),
    _int("lease_until"),
    _maybe_text("error"),
    _int("created_at"),
    _int("updated_at"),
    _one_of("state", "writing", "registered", "rolling_back", "rolled_back"),
    CheckConstraint("(app_id IS NULL) = (batch_id IS NULL)", name="operations_batch"),
    Index(
        "operations_batch_once", "table_id", "app_id", "batch_id", unique=True, **_where("app_id IS NOT NULL AND state <> 'rolled_back'")
    ),
    Index("operations_open", "lease_until", **_where("state IN ('writing', 'rolling_back')")),
    sqlite_with_rowid=False,
)

CHANGE_LOG = Table(
    "change_log",
    METADATA,
    # the table in the upper bits, its journal number below: one integer, because rows are appended and read in this order
    _key(),
    Column("table_id", BigInteger, Computed(f"id >> {ID_BITS}", persisted=True)),
    Column("seq", BigInteger, Computed(f"id & {(1 << ID_BITS) - 1}", persisted=True)),
    _text("registry_table"),
    _text("operation"),
    _int("row_id"),
    _maybe_text("before"),
    _maybe_text("after"),
    _int("at"),
    # the last whole image of a file: what completes an UPDATE of it that is read after its deletion
    Index("change_log_deleted_files", "row_id", **_where("registry_table = 'table_files' AND operation = 'DELETE'")),
)

SUBSCRIBER_CURSOR = Table(
    "subscriber_cursor",
    METADATA,
    Column("component", Text, primary_key=True),
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    _int("seq"),
    _int("epoch", server_default="0"),
    Column("needs_refresh", SmallInteger, nullable=False, server_default="0"),
    _int("updated_at"),
    sqlite_with_rowid=False,
)

DEAD_LETTER = Table(
    "dead_letter",
    METADATA,
    _key(drawn=False),
    _text("component"),
    _int("table_id"),
    _int("seq"),
    _int("attempts"),
    _text("error"),
    _int("at"),
    _maybe_int("resolved_at"),
)

ASTHA_STATE = Table("astha_state", METADATA, Column("key", Text, primary_key=True), _text("value"), _int("updated_at"))

LEASES = Table(
    "leases",
    METADATA,
    Column("name", Text, primary_key=True),
    _text("kind"),
    _text("owner"),
    _int("epoch"),
    _int("expires_at"),
    _int("acquired_at"),
    _one_of("kind", "exclusive", "reader"),
)

LEASE_NUMBERS = Table(
    "lease_numbers",
    METADATA,
    Column("name", Text, ForeignKey("leases.name", name="lease_numbers_lease", ondelete="CASCADE"), primary_key=True),
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    _int("seq"),
)

RUNS = Table(
    "runs",
    METADATA,
    _key(drawn=False),
    _text("job"),
    _maybe_int("table_id"),
    _text("state"),
    _text("plan"),
    _text("result"),
    _text("actor"),
    _int("requested_at"),
    _maybe_int("started_at"),
    _maybe_int("finished_at"),
    _one_of("state", "requested", "running", "done", "failed", "cancelled"),
    Index("runs_open", "state", **_where("state IN ('requested', 'running')")),
)

REGISTRY_FACTS = Table("registry_facts", METADATA, Column("key", Text, primary_key=True), _text("value"))
