"""Filters the messages that Java and Spark print at their start from the terminal; all other lines are passed on."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_LEVEL = "spark.log.level"  # any value but OFF requests Spark's own lines
_STARTING = re.compile(
    rb"WARNING: Using incubator modules: "
    rb"|Using Spark's default log4j profile: "
    rb"|Setting (Spark|default) log level to "
    rb"|To adjust logging level use "
    rb"|[\d/]+ [\d:]+ WARN (Utils: (Your hostname, |Set SPARK_LOCAL_IP )|NativeCodeLoader: Unable to load native-hadoop )"
)
# Spark's second report of an error that it also raises, with the Java stack trace
_SECOND_REPORTS = "SQLQueryContextLogger"


def start_quietly(options: Mapping[str, str]) -> None:
    """Start the Java process of this Python process, if it has none yet, with its standard error passed on line by line."""
    logger = PySparkLogger.getLogger(_SECOND_REPORTS)
    if logger.level == logging.WARNING:  # Spark's default: no other was chosen
        logger.setLevel(logging.CRITICAL + 1)
    if SparkContext._gateway is not None or os.name != "posix":  # noqa: SLF001 - the only sign of a running Java process
        return
    try:
        terminal = os.dup(sys.__stderr__.fileno() if sys.__stderr__ is not None else 2)
    except (OSError, ValueError):  # without standard error there is nothing to filter
        return
    reading, writing = os.pipe()
    try:
        conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"stderr": writing}))  # type: ignore[no-untyped-call] # noqa: SLF001
    finally:
        os.close(writing)
        threading.Thread(target=_pass_on, args=(reading, terminal), name="lakebed-java-stderr", daemon=True).start()


def _pass_on(reading: int, terminal: int) -> None:
    """Passes lines on until the Java process and its children have ended."""
    with os.fdopen(reading, "rb") as lines, os.fdopen(terminal, "wb", buffering=0) as out:
        for line in lines:
            if not _STARTING.match(line):
                try:
                    out.write(line)
                except OSError:  # the terminal is closed; Java must not block on a full pipe
                    continue
