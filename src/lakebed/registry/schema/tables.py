"""The registry's tables, declared once: DDL, the journal's triggers and the migration tests all start here.

Times are UTC microseconds. Row ids of journaled tables are allocated under the lake table's lock
(`table_seq.last_id`), so they rise in commit order and are never reused.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
)
from sqlalchemy import UniqueConstraint as Unique

from lakebed.registry.ids import ID_BITS
from lakebed.registry.schema.columns import key, nullable_int, nullable_text, one_of, required_int, required_text, where

METADATA = MetaData()

TABLE_SEQ = Table(
    "table_seq",
    METADATA,
    key("table_id", allocated=False),
    required_int("last_seq", server_default="0"),
    required_int("purged_seq", server_default="0"),
    required_int("last_slot", server_default="0"),
    required_int("last_id", server_default="0"),
    required_int("horizon_seq", server_default="0"),  # files retired up to here may be gone: `as_of` reaches no further back
)

TABLES = Table(
    "tables",
    METADATA,
    key(),
    required_text("database"),
    required_text("name"),
    required_text("kind"),
    nullable_int("event_time_field"),
    required_int("row_count", server_default="0"),
    required_int("file_count", server_default="0"),
    required_int("total_size", server_default="0"),
    required_int("last_modified"),
    required_int("last_group", server_default="0"),
    required_int("committed_group", server_default="0"),
    nullable_int("current_snapshot_id"),
    required_text("state", server_default="ok"),
    required_int("created_at"),
    nullable_int("dropped_at"),
    one_of("kind", "table", "view_set"),
    one_of("state", "ok", "degraded"),
    CheckConstraint("row_count >= 0 AND file_count >= 0 AND total_size >= 0", name="tables_counters"),
    CheckConstraint("committed_group <= last_group", name="tables_groups"),
    Index("tables_name", "database", "name", unique=True, **where("dropped_at IS NULL")),
)

TABLE_METADATA = Table(
    "table_metadata",
    METADATA,
    key(),
    required_int("table_id"),
    required_int("schema_version"),
    Column("schema", LargeBinary, nullable=False),
    required_text("schema_hash"),
    required_text("standing"),
    required_text("storage_engine"),
    required_text("engine_config"),
    required_text("format"),
    required_text("compression"),
    required_text("partition_by"),
    required_text("sort_by"),
    required_text("properties"),
    required_int("last_modified"),
    required_int("created_at"),
    required_int("updated_at"),
    one_of("standing", "serving", "readable", "staged", "incompatible"),
    Unique("table_id", "schema_version", name="table_metadata_version"),
    Unique("table_id", "schema_hash", name="table_metadata_hash"),
    Index("table_metadata_serving", "table_id", unique=True, **where("standing = 'serving'")),
)

PARTITION_SCOPES = Table(
    "partition_scopes",
    METADATA,
    key(allocated=False),
    required_int("table_id"),
    required_text("view_instance_id"),
    required_text("schema_hash"),
    Unique("table_id", "view_instance_id", "schema_hash", name="partition_scopes_key"),
)

PARTITIONS = Table(
    "partitions",
    METADATA,
    key(),
    required_int("table_id"),
    required_int("scope_id"),
    required_text("view_instance_id"),
    required_int("begin_insert_time"),
    required_int("end_insert_time"),
    nullable_int("min_event_time"),
    nullable_int("max_event_time"),
    required_text("schema_hash"),
    nullable_text("source_data_hash"),
    nullable_text("lookup_hash"),
    required_text("fingerprint"),
    required_int("num_rows"),
    required_int("file_count"),
    required_int("partition_format_version"),
    required_int("updated"),
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
    key(),
    required_int("table_id"),
    required_int("partition_id"),
    required_text("file_name"),
    required_text("file_path"),
    required_int("file_size"),
    required_text("file_type"),
    required_text("partition_path"),
    required_int("row_count"),
    required_text("checksum"),
    required_text("checksum_kind"),
    Column("is_compressed", SmallInteger, nullable=False),
    required_text("schema_hash"),
    required_int("added_seq"),
    nullable_int("retired_seq"),
    nullable_int("added_group"),
    nullable_int("removed_group"),
    required_int("created_at"),
    required_int("modified_at"),
    one_of("file_type", "parquet", "json"),
    CheckConstraint("file_size > 0 AND row_count > 0", name="table_files_not_empty"),
    CheckConstraint("retired_seq > added_seq", name="table_files_lifetime"),
    CheckConstraint("removed_group > added_group", name="table_files_groups"),
    Unique("file_path", name="table_files_path"),
    Index("table_files_partition", "partition_id"),
    # covers planning: live paths are read from the index alone (SQLite counts the condition's column as one to be covered)
    Index("table_files_live", "table_id", "partition_path", "schema_hash", "file_path", "retired_seq", **where("retired_seq IS NULL")),
    # retired files stay in it until their rows go: sealing looks at few of them, and retiring need not touch it
    Index("table_files_pending", "table_id", **where("added_group IS NULL")),
    # a commit to Iceberg reads the files of its own step, not those of the whole lake
    Index("table_files_added_group", "table_id", "added_group", **where("added_group IS NOT NULL")),
    Index("table_files_removed_group", "table_id", "removed_group", **where("removed_group IS NOT NULL")),
)

PARTITION_METADATA = Table(
    "partition_metadata",
    METADATA,
    Column("file_path", Text, ForeignKey("table_files.file_path", name="partition_metadata_file"), primary_key=True),
    required_int("table_id"),
    required_int("file_size"),
    Column("metadata", LargeBinary, nullable=False),
    required_int("insert_time"),
    required_int("partition_format_version"),
    required_int("footer_length"),
    required_int("num_rows"),
    required_text("checksum"),
    Index("partition_metadata_old", "partition_format_version", **where("partition_format_version < 2")),
)

FILE_COLUMNS = Table(
    "file_columns",
    METADATA,
    # no foreign key: checking it for every column of every file is work on each registration; the checker compares
    Column("file_id", BigInteger, primary_key=True, autoincrement=False),
    Column("field_id", BigInteger, primary_key=True, autoincrement=False),
    nullable_int("null_count"),
    nullable_int("value_count"),
    Column("lower", LargeBinary, nullable=True),
    Column("upper", LargeBinary, nullable=True),
    sqlite_with_rowid=False,
)

FILE_RANGES = Table(
    "file_ranges",
    METADATA,
    key(),  # file id * 8 + index slot
    required_int("scope"),
    required_int("level"),
    required_int("prefix"),
    Index("file_ranges_bin", "scope", "level", "prefix"),
)

# files that an adoption or an import did not register, until a user decides on them: never orphans
LEFT_OUT_FILES = Table(
    "left_out_files",
    METADATA,
    Column("file_path", Text, primary_key=True),
    required_int("file_size"),
    required_int("table_id"),
    required_text("source"),
    required_text("reason"),
    required_int("recorded_at"),
    sqlite_with_rowid=False,
)

# what made each group that waits for its commit, a trigger or the kind of a change: only a rewrite leaves the rows as they were
TABLE_GROUPS = Table(
    "table_groups",
    METADATA,
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column("group_no", BigInteger, primary_key=True, autoincrement=False),
    required_text("kind"),
    sqlite_with_rowid=False,
)

# which version of a table served from a journal number on: the schema that reading as of that number gives
SERVING_HISTORY = Table(
    "serving_history",
    METADATA,
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    required_int("schema_version"),
    required_int("group_no"),
    required_int("at"),
    sqlite_with_rowid=False,
)

TABLE_STATS = Table(
    "table_stats",
    METADATA,
    key(),
    required_int("table_id"),
    required_text("partition_path"),
    required_int("row_count"),
    required_int("file_count"),
    required_int("small_file_count"),
    required_int("total_size"),
    required_int("last_modified"),
    required_int("created_at"),
    required_int("updated_at"),
    CheckConstraint("row_count >= 0 AND file_count >= 0 AND small_file_count >= 0 AND total_size >= 0", name="table_stats_counters"),
    Unique("table_id", "partition_path", name="table_stats_path"),
)

TABLE_SNAPSHOTS = Table(
    "table_snapshots",
    METADATA,
    key(),
    required_int("table_id"),
    required_int("snapshot_id"),
    nullable_int("parent_id"),
    required_int("sequence_number"),
    required_int("group_no"),
    required_int("timestamp_ms"),
    required_text("manifest_list"),
    required_text("metadata_location"),
    required_text("summary"),
    required_int("schema_id"),
    required_text("operation"),
    required_text("trigger"),
    nullable_int("expired_at"),
    Unique("table_id", "snapshot_id", name="table_snapshots_id"),
)

TEMPORARY_FILES = Table(
    "temporary_files",
    METADATA,
    Column("file_path", Text, primary_key=True),
    required_int("file_size"),
    required_int("table_id"),
    required_int("retired_at"),
    required_int("expiration"),
    required_text("reason"),
    required_int("attempts", server_default="0"),
    nullable_int("claimed_until"),
    Index("temporary_files_expiration", "expiration"),
    sqlite_with_rowid=False,
)

OPERATIONS = Table(
    "operations",
    METADATA,
    Column("op_id", Text, primary_key=True),
    required_int("table_id"),
    required_text("kind"),
    required_text("state"),
    nullable_text("staging_path"),
    nullable_text("mode"),
    nullable_text("app_id"),
    nullable_int("batch_id"),
    nullable_text("query_id"),  # of the streaming query, that is of its checkpoint
    nullable_text("result"),
    required_int("lease_until"),
    nullable_text("error"),
    required_int("created_at"),
    required_int("updated_at"),
    one_of("state", "writing", "registered", "rolling_back", "rolled_back"),
    CheckConstraint("(app_id IS NULL) = (batch_id IS NULL)", name="operations_batch"),
    Index("operations_batch_once", "table_id", "app_id", "batch_id", unique=True, **where("app_id IS NOT NULL AND state <> 'rolled_back'")),
    Index("operations_open", "lease_until", **where("state IN ('writing', 'rolling_back')")),
    sqlite_with_rowid=False,
)

CHANGE_LOG = Table(
    "change_log",
    METADATA,
    # the table in the upper bits, its journal number below: one integer, because rows are appended and read in this order
    key(),
    Column("table_id", BigInteger, Computed(f"id >> {ID_BITS}", persisted=True)),
    Column("seq", BigInteger, Computed(f"id & {(1 << ID_BITS) - 1}", persisted=True)),
    required_text("registry_table"),
    required_text("operation"),
    required_int("row_id"),
    nullable_text("before"),
    nullable_text("after"),
    required_int("at"),
    # the last whole image of a file: what completes an UPDATE of it that is read after its deletion
    Index("change_log_deleted_files", "row_id", **where("registry_table = 'table_files' AND operation = 'DELETE'")),
)

SUBSCRIBER_CURSOR = Table(
    "subscriber_cursor",
    METADATA,
    Column("component", Text, primary_key=True),
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    required_int("seq"),
    required_int("epoch", server_default="0"),
    Column("needs_refresh", SmallInteger, nullable=False, server_default="0"),
    required_int("updated_at"),
    sqlite_with_rowid=False,
)

DEAD_LETTER = Table(
    "dead_letter",
    METADATA,
    key(allocated=False),
    required_text("component"),
    required_int("table_id"),
    required_int("seq"),
    required_int("attempts"),
    required_text("error"),
    required_int("at"),
    nullable_int("resolved_at"),
)

ASTHA_STATE = Table("astha_state", METADATA, Column("key", Text, primary_key=True), required_text("value"), required_int("updated_at"))

LEASES = Table(
    "leases",
    METADATA,
    Column("name", Text, primary_key=True),
    required_text("kind"),
    required_text("owner"),
    required_int("epoch"),
    required_int("expires_at"),
    required_int("acquired_at"),
    one_of("kind", "exclusive", "reader"),
)

LEASE_NUMBERS = Table(
    "lease_numbers",
    METADATA,
    Column("name", Text, ForeignKey("leases.name", name="lease_numbers_lease", ondelete="CASCADE"), primary_key=True),
    Column("table_id", BigInteger, primary_key=True, autoincrement=False),
    required_int("seq"),
)

RUNS = Table(
    "runs",
    METADATA,
    key(allocated=False),
    required_text("job"),
    nullable_int("table_id"),
    required_text("state"),
    required_text("plan"),
    required_text("result"),
    required_text("actor"),
    required_int("requested_at"),
    nullable_int("started_at"),
    nullable_int("finished_at"),
    one_of("state", "requested", "running", "done", "failed", "cancelled"),
    Index("runs_open", "state", **where("state IN ('requested', 'running')")),
)

REGISTRY_FACTS = Table("registry_facts", METADATA, Column("key", Text, primary_key=True), required_text("value"))
