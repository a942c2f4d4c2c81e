"""Set up Spark sessions: sparklog's jar, the checkpoint manager, fast Python workers."""

import functools
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparklog.configdef import INT_MAX, LONG_MAX, Key, keys_of, option
from sparklog.errors import InvalidRequestError
from sparklog.jvm.gateway import NO_JAR, Obstacle, find_gateway, load_jar
from sparklog.jvm.jar import jar
from sparklog.jvm.jar_file import given_among

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("sparklog")
MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
MANAGER = "sparklog.checkpoint.LogCheckpointFileManager"
JARS_KEY = "spark.jars"
_IN_SESSION = {
    MANAGER_KEY: MANAGER,
    # Each record has a CRC; Spark's own checksums would be a second file beside each file.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_AT_START = {
    "spark.python.unix.domain.socket.enabled": "true",
    # Each micro-batch broadcasts. The default block of 4 MiB is humongous for G1, and the resulting
    # collections were most of a micro-batch's p99 (`bench spark`: 284 ms to 119).
    "spark.broadcast.blockSize": "256k",
}
_DAEMON = {"spark.python.daemon.module": "sparklog.session.daemon"}
_PYTHON_KEY: Final = "spark.pyspark.python"
_MASTER_KEY: Final = "spark.master"
_TIMEOUT_S: Final = 60
_LOOK: Final = "import importlib.util as u, sys; sys.exit(u.find_spec('sparklog') is None)"
PREFIX: Final = "spark.sparklog.checkpoint."


def spark_conf(
    conf: Mapping[str, str] | None = None, *, daemon: bool | None = None, checkpoints: bool = True
) -> dict[str, str]:
    """Return the settings for a new session, including the settings in `conf`.

        for key, value in sparklog.spark_conf().items():
            builder = builder.config(key, value)

    With these settings checkpoints are stored as logs, the JVM reads and writes logs itself, and
    Python workers start and answer faster (Unix sockets, a daemon with preloaded modules).
    `spark.jars` of `conf` are loaded beside sparklog's jar; other settings of `conf` take
    precedence. Compiles the jar at first use (about 10 s per Spark version), unless `spark.jars` or
    $SPARKLOG_JAR has a jar.

    Args:
        conf: Other settings of the session.
        daemon: Whether executors run sparklog's daemon of Python workers. sparklog must then be
            installed for their Python: --py-files come too late, and no worker would start. The
            daemon is the default with a local master, if the workers' Python can import sparklog.
        checkpoints: Whether checkpoints are stored as logs; with False, Spark's manager is used.

    Raises InvalidRequestError if the jar can't be compiled, or if the given jar isn't for this
    sparklog and Spark.
    """
    given = dict(conf or {})  # `spark.jars` is taken out below: Spark's jars and ours are joined
    jars = [name for name in given.pop(JARS_KEY, "").split(",") if name]
    use_daemon = workers_find_daemon(given) if daemon is None else daemon
    at_start = {**_AT_START, **(_DAEMON if use_daemon else {})}
    own = jar(jars)
    jars = [*jars, *([] if given_among(jars) else [own])]
    in_session = _IN_SESSION if checkpoints else {}
    return {**at_start, **in_session, **given, JARS_KEY: ",".join(jars)}


def enable(spark: "SparkSession", *, checkpoints: bool = True) -> None:
    """Load the jar into a running session, and store checkpoints of its new queries as logs.

    Settings that only a new session can use (`spark_conf`) are not changed. Running queries
    continue unchanged. A checkpoint that Spark's own manager wrote is continued.

    Args:
        spark: The session.
        checkpoints: If False, only the jar is loaded, so that the JVM reads and writes logs.

    Raises InvalidRequestError on Spark Connect, where the server must be started with the settings
    of `spark_conf`, and if the jar can't be compiled.
    """
    refuse_connect(spark)
    found = find_gateway(spark)
    if found is NO_JAR:  # not by listJars: spark.jars of a second context aren't loaded
        load_jar(spark, jar())
    elif isinstance(found, Obstacle):
        _LOGGER.log(found.level, "%s", found.reason)
    for key, value in (_IN_SESSION if checkpoints else {}).items():
        spark.conf.set(key, value)


def refuse_connect(spark: "SparkSession") -> None:
    """Raise InvalidRequestError for a Spark Connect session, which `enable` can't set up."""
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidRequestError(
            "a Spark Connect session can't load sparklog's classes into its server: start the "
            "server with the settings of sparklog.spark_conf(), which the command "
            "`sparklog doctor --spark-conf` prints, and call sparklog.register(spark) here"
        )


def workers_find_daemon(conf: Mapping[str, str]) -> bool:
    """Return whether sparklog is known to be installed for the Python of a session's workers.

    False on a cluster, where this is unknown. `conf`: the session's settings. Cost: starts that
    Python, once.
    """
    submitted = _submitted()
    master = conf.get(_MASTER_KEY) or submitted.get(_MASTER_KEY) or "local"
    if re.fullmatch(r"local(\[.*\])?", master) is None:
        return False
    given = conf.get(_PYTHON_KEY) or submitted.get(_PYTHON_KEY)
    return _finds(given or os.environ.get("PYSPARK_PYTHON") or sys.executable)


@functools.cache
def _finds(python: str) -> bool:
    # -E ignores PYTHONPATH, which has the --py-files in a driver but not in the daemon. In another
    # directory than the root, the checkout of a developer would count as an installation.
    try:
        done = subprocess.run(
            [python, "-E", "-c", _LOOK], cwd="/", capture_output=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _submitted() -> dict[str, str]:
    """Return the settings of spark-submit: of the running driver, or PYSPARK_SUBMIT_ARGS."""
    # spark-submit has started this Python: only its JVM knows the settings of the command line.
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    found = re.search(r"--master[ =](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return {} if found is None else {_MASTER_KEY: found[1]}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Names and defaults of the checkpoint manager's settings, as part of Spark's session conf.

    The JVM reads them (LogDir.scala, Durable.scala) when a query starts. Here they are documented
    for the reference page; tests compare both.
    """

    flush: str = option(
        f"{PREFIX}flush",
        "commit",
        choices=("commit", "interval", "none"),
        doc="When a file of the checkpoint is synced: before its write returns (commit), every "
        "flush.ms (interval), or by the operating system (none). With the latter two, a power cut "
        "may lose the last files.",
    )
    flush_ms: int = option(
        f"{PREFIX}flush.ms",
        1000,
        low=1,
        high=INT_MAX,
        doc="With flush=interval: time (ms) between a write and its sync.",
    )
    segment_bytes: int = option(
        f"{PREFIX}segment.bytes",
        1 << 30,
        low=1,
        high=LONG_MAX,
        doc="Size in bytes at which a partition of the checkpoint rolls a new segment.",
    )
    lock_timeout_ms: int = option(
        f"{PREFIX}lock.timeout.ms",
        30_000,
        low=1,
        high=LONG_MAX,
        doc="How long (ms) a write waits for another process that writes the same partition.",
    )
    open_files: int = option(
        f"{PREFIX}open.files",
        0,
        low=0,
        high=LONG_MAX,
        doc="Number of partitions whose files stay open in a JVM; the least recently used ones are "
        "closed. 0: an eighth of the process's limit of open files, from 128 to 2,048.",
    )
    store: str = option(
        f"{PREFIX}store",
        "runs",
        choices=("disk", "runs"),
        doc="How a new checkpoint that is not on a local disk is kept: by sparklog in runs of "
        "entries, with two PUT requests per micro-batch (runs), or as files by Spark (disk).",
    )
    commit: str = option(
        f"{PREFIX}commit",
        "put",
        choices=("put", "ride"),
        doc="With store=runs: when the commit of a micro-batch is written: at once (put), or "
        "together with the plan of the next micro-batch or when the query ends (ride). With ride, "
        "a micro-batch takes one PUT request, and a driver that is killed repeats the last "
        "micro-batch.",
    )
    cache_bytes: int = option(
        f"{PREFIX}cache.bytes",
        64 << 20,
        low=0,
        high=LONG_MAX,
        doc="With store=runs: bytes of the contents of files that the driver keeps in memory for "
        "each running query. Executors read other files from the store.",
    )
    request_timeout_ms: int = option(
        f"{PREFIX}request.timeout.ms",
        120_000,
        low=0,
        high=LONG_MAX,
        doc="With store=runs: how long (ms) a request is repeated that fails or gets no answer. "
        "Then the query fails, and continues after a restart.",
    )


CHECKPOINT_KEYS: Final[dict[str, Key]] = keys_of(CheckpointSettings)
