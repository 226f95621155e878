"""The Spark session: built when it is first needed, or given by the caller and checked."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakebed.core.errors import SessionRefusedError
from lakebed.pipeline.spark.environment import worker_environment
from lakebed.pipeline.spark.errors import SPARK_ERRORS, translate
from lakebed.pipeline.spark.quiet import LOG_LEVEL, start_quietly
from lakebed.pipeline.spark.zone import Zone

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

# Required for correct files and answers; a session that differs is refused.
NEEDED = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default, INT96, has no statistics and is not an Iceberg type
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",  # no other engine reads the legacy calendar
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.caseSensitive": "false",  # column names are case-insensitive
}
_ZONE = "spark.sql.session.timeZone"
_SILENT = "OFF"
_SQL = {
    **NEEDED,
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",  # given paths exist: no listing job
    _ZONE: "UTC",
}
_LOCAL = {
    "spark.master": "local[*]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    LOG_LEVEL: "ERROR",
}
_OLDEST_SPARK = (4, 1)
_OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class SparkSource:
    """The source of the session. Spark does not start before `spark` is first accessed."""

    def __init__(
        self, given: SparkSession | None = None, *, options: Mapping[str, str] | None = None, serves: tuple[str, str] | None = None
    ) -> None:
        """`serves`: the registry's URL and the warehouse for the SQL functions of a session built here."""
        self._given, self._options, self._serves = given, dict(options or {}), serves
        self._ready: SparkSession | None = None
        self._guard = threading.Lock()

    @property
    def spark(self) -> SparkSession:
        """The session. One given by the caller is checked once; the error names missing settings."""
        with self._guard:
            if self._ready is None:
                session = self._given if self._given is not None else self._build()
                _require_fit(session)
                self._ready = session
            return self._ready

    @property
    def zone(self) -> Zone:
        """The zone that the session uses for times without one. Does not start the session."""
        if self.is_there:
            return Zone.parse(str(self.spark.conf.get(_ZONE)))
        return Zone.parse(self._options.get(_ZONE, _SQL[_ZONE]))

    @property
    def is_there(self) -> bool:
        """Whether the session has started."""
        return self._ready is not None or self._given is not None

    def _build(self) -> SparkSession:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        is_remote = "spark.remote" in self._options or "SPARK_REMOTE" in os.environ
        options = {**({} if is_remote else _LOCAL), **_SQL, **self._options}
        try:
            with worker_environment(*self._serves) if self._serves is not None else nullcontext():
                if not is_remote and self._options.get(LOG_LEVEL, _SILENT) == _SILENT:
                    start_quietly(options)
                builder = SparkSession.builder.appName("lakebed")
                for key, value in options.items():
                    builder = builder.config(key, value)
                return builder.getOrCreate()
        except SPARK_ERRORS as exc:
            raise SessionRefusedError(_why_not(exc)) from exc


def _require_fit(session: SparkSession) -> None:
    try:
        version = tuple(int(part) for part in session.version.split(".")[:2])
        wrong = [f"{key}={wanted}" for key, wanted in NEEDED.items() if (session.conf.get(key) or "").upper() != wanted.upper()]
    except SPARK_ERRORS as exc:
        raise translate(exc, "checking the Spark session") from exc
    if version < _OLDEST_SPARK:
        message = f"the Spark session has version {session.version}: Lakebed needs {'.'.join(map(str, _OLDEST_SPARK))} or newer"
        raise SessionRefusedError(message)
    if wrong:
        message = f"the Spark session has settings that would write wrong files: `spark.conf.set` {', '.join(wrong)}, or let Lakebed build the session"
        raise SessionRefusedError(message)


def _why_not(exc: BaseException) -> str:
    if isinstance(exc, PySparkException) and exc.getCondition() == "JAVA_GATEWAY_EXITED":
        return _explain_java()
    return f"the Spark session cannot be started: {str(exc)[:400]}"


def _explain_java() -> str:
    """Called only if the JVM did not start: checking the version of Java costs as much as starting it."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {_OLDEST_JAVA} or newer and set JAVA_HOME to it"
    try:
        shown = subprocess.run([java or "java", "-version"], capture_output=True, text=True, timeout=20, check=False).stderr  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return f"Spark needs Java, and {f'{java} cannot be run' if java else 'there is none on the PATH'}: {advice}"
    found = _VERSION.search(shown)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        return f"Spark needs Java {_OLDEST_JAVA} or newer, {java} is {found[1] if found else 'of an unknown version'}: {advice}"
    return f"the JVM ({java}, Java {found[1]}) did not start: see its messages on stderr, and check its memory settings"
