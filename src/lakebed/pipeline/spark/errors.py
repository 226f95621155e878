"""Translates Spark's errors into typed ones. Lakebed's own refusals inside a query are passed as a marked text."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException, PySparkTypeError, PySparkValueError

from lakebed.core.errors import LakebedError, SchemaRefusedError, SparkRefusedError, SparkUnavailableError, StorageFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPEN, _CLOSE = "lakebed-refuses{{", "}}"
_MARKED = re.compile(re.escape(_OPEN) + r"(.*?)" + re.escape(_CLOSE), re.DOTALL)
_FULL = re.compile(r"No space left on device|Disk quota exceeded|\[Errno 28\]|\[Errno 122\]")
_GONE = re.compile(
    r"stopped SparkContext|SparkContext was shut ?down|SparkContext has been shutdown|Cannot call methods on a stopped|active SparkContext"
    r"|SESSION_CLOSED|Connection refused|SparkSession.*stopped|ExecutorLostFailure|FetchFailedException|NO_ACTIVE_SESSION|SESSION_OR_CONTEXT_NOT_EXISTS|StatusCode\.UNAVAILABLE"
    r"|\"org\.apache\.spark\.SparkEnv\$\.get\(\)\" is null"  # the error of a write in a stopped session
)
_IO = re.compile(
    r"java\.io\.|org\.apache\.hadoop\.fs\.[A-Z]\w+Exception|java\.nio\.file\.|Permission denied|Read-only file system|Mkdirs failed|OSError|PermissionError|FileNotFound"
)
_CALLING = "An error occurred while calling"
_RAISED = re.compile(r"^((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit): .*)$", re.MULTILINE | re.ASCII)
_CAUSED = re.compile(r"^\s*Caused by: (.*)$", re.MULTILINE)
_SHOWN_CHARS = 600
_PLAIN = (AnalysisException, ParseException, PySparkTypeError, PySparkValueError)
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)


def refusal(message: str) -> str:
    """A text for `raise_error` that `translate` turns back into a typed refusal."""
    return _OPEN + message.replace("}}", "} }") + _CLOSE


@contextmanager
def spark_translated(doing: str) -> Iterator[None]:
    """Errors of Spark in the block become typed; `doing` names the action and the table."""
    try:
        yield
    except SPARK_ERRORS as exc:
        raise translate(exc, doing) from exc
    except AssertionError as exc:
        if not _is_pysparks(exc):
            raise
        message = f"{doing}: the Spark session is stopped: start a new one and retry"
        raise SparkUnavailableError(message) from exc


def _is_pysparks(exc: AssertionError) -> bool:
    """PySpark asserts without a message that its context exists."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("pyspark.")


def translate(exc: BaseException, doing: str) -> LakebedError:
    text = str(exc)
    if found := _MARKED.search(text):
        return SchemaRefusedError(f"{doing}: {found[1]}")
    if _FULL.search(text):
        return StorageFullError(f"{doing}: no space is left in the warehouse; free some, then retry; nothing was changed")
    if isinstance(exc, _PLAIN):
        return SparkRefusedError(f"{doing}: refused by Spark: {_first(text)}")
    if isinstance(exc, ConnectionError) or _GONE.search(text):
        return SparkUnavailableError(f"{doing}: the Spark session is gone or lost its executors: {_first(text)}; start a new one and retry")
    if _IO.search(text):
        return SparkUnavailableError(f"{doing}: Spark could not read or write: {_cause(text)}; check the storage, then retry")
    return SparkRefusedError(f"{doing}: the Spark job failed, nothing was changed: {_cause(text)}; correct the query or its input")


def _first(text: str) -> str:
    lines = (line.strip(" :\t") for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith(_CALLING)), "no message")[:_SHOWN_CHARS]


def _cause(text: str) -> str:
    """The innermost cause, which is more specific than an aborted stage; for Python it is the last line of the traceback."""
    found = _RAISED.findall(text) or _CAUSED.findall(text)
    return found[-1].strip()[:_SHOWN_CHARS] if found else _first(text)
