"""Kafka's storage engine as a library inside Spark.

import sparklog
with sparklog.open("/data/log", mode="rw") as log:
    log.create_topic("flights", partitions=4)
    log.append("flights", pa.table({"key": ["N14228"], "value": ["{...}"]}))
    for batch in log.read("flights"): ...

- `datasource`, `source`, `sink`, `state`: Spark: the data source, reading, writing, checkpoints
- `spark_errors`: errors as Spark shows them; `worker_package`: workers without sparklog
- `jvm`: the Scala code and its jar
- `cli`, `tools`: commands, and what they do as functions; `checkpoint`: a query's checkpoint
- `kafka`: an endpoint for Kafka's clients
- `service`: background work on a log: retention, compaction, tiering, checks
- `tiered`: closed segments in object storage, and a bucket alone; `diskless`: a log in a bucket
- `opening`: which home a path names
- `log`: a log, whatever its home; `logdir`: the home on disk
- `storage`: what a home is, as protocols; `fs`: local files; `format`: Kafka's bytes
- `network`: addresses to listen on, and certificates
- `testing`: contracts of the protocols, disks and stores that fail
- `config`, `configdef`: options; `errors`; `metrics`; `clock`; `common`: topic-partitions
- `notebook`, `progress`: how results and long work show in notebooks; `html`: escaped HTML
- `extras`: optional libraries; `lru_cache`, `pluralize`, `quantities`, `secret_digest`, `texts`:
  small helpers
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparklog.errors import (
    BatchConflictError,
    CommitUnknownError,
    DataCorruptionError,
    FencedError,
    GroupNotEmptyError,
    InvalidRequestError,
    LogLockedError,
    LogReplacedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
    RecordTooLargeError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from sparklog.fs import LOCAL, FileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparklog.log.log import Log

__version__ = "0.1.0"
__all__ = [
    "BatchConflictError",
    "CommitUnknownError",
    "DataCorruptionError",
    "FencedError",
    "GroupNotEmptyError",
    "InvalidRequestError",
    "Log",
    "LogLockedError",
    "LogReplacedError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PartitionOfflineError",
    "RecordTooLargeError",
    "SparklogError",
    "StorageUnavailableError",
    "TopicReplacedError",
    "UnknownTopicError",
    "UnsupportedVersionError",
    "enable",
    "open",
    "register",
    "spark_conf",
]


def __getattr__(name: str) -> Any:
    """Bring `Log`, and with it Arrow, when it is asked for: `sparklog --help` does without."""
    if name != "Log":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sparklog.log.log import Log

    globals()[name] = Log
    return Log


def open(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    until: str = "high-watermark",
    stopped: Callable[[], bool] = lambda: False,
    fs: FileSystem = LOCAL,
    **components: Any,
) -> "Log":
    """Open a log: a log dir (several joined by ","), or a bucket by its URL; a context manager.

    Args:
        path: the log dir or dirs. In mode "rw" it is made where it doesn't exist; a directory
            that a broker left is taken over as it is. Or s3://bucket/prefix, file:///directory: a
            log whose home is that store, written and read by any number of hosts; in mode "rw" it
            is made where nothing is. Or the URL that tiered segments were copied to: all tiered
            topics are then read from there alone, mode "r".
        mode: "r" takes no lock and changes nothing; "rw" writes.
        storage_options: fsspec's, for a store: {"endpoint_url": ..., "key": ...}; the store's own
            places (environment, profiles) are asked where they are left out. Never written down.
            A log dir without remote storage takes none.
        options: log-wide options under Kafka's names ("flush", "log.retention.hours", ...), and
            those of reading remote segments ("remote.cache.directory", "remote.keyring", ...).
        until: for a directory that a running broker writes: "high-watermark" reads as far as the
            broker's checkpoint, "log-end" as far as whole batches go.
        stopped: asked while a read waits for a store that doesn't answer (`remote.patience.ms`);
            once it is true, the store's error is raised.
        fs, components (clock): others than the machine's own, for tests.
    Raises: InvalidRequestError, LogLockedError, DataCorruptionError, UnsupportedVersionError;
        StorageUnavailableError for an archive that can't be reached.
    """
    from sparklog.opening import open_log, refuse_unused_storage_options

    refuse_unused_storage_options(path, storage_options, mode, fs)
    return open_log(
        path, mode=mode, storage_options=storage_options, options=options, until=until,
        stopped=stopped, fs=fs, **components,
    )  # fmt: skip


def register(spark: "SparkSession") -> None:
    """Make `format("sparklog")` known to a Spark session, where Spark doesn't find it by itself.

    Spark finds a package that is installed for the Python of its workers. Call this for a package
    that was shipped with `--py-files` or `addPyFile`.

    Raises: InvalidRequestError if the workers' Python can't import sparklog.
    """
    from sparklog import datasource

    datasource.register(spark)


def enable(spark: "SparkSession", *, checkpoints: bool = True) -> None:
    """Make `format("sparklog")` known, in the JVM, and keep checkpoints of new queries as logs.

    For a session that runs; `spark_conf` gives a session that is to be built more than that.
    `checkpoints` False: they stay as Spark keeps them. See sparklog.state.session.enable for what
    it sets and raises, and `register` for what is wrong with a session whose Python workers don't
    find sparklog; nothing is set then.
    """
    from sparklog.state import session

    session.refuse_connect(spark)
    register(spark)
    session.enable(spark, checkpoints=checkpoints)


def spark_conf(
    conf: Mapping[str, str] | None = None, *, daemon: bool | None = None, checkpoints: bool = True
) -> dict[str, str]:
    """Return the settings of a session to be built: logs at the JVM's speed, checkpoints as logs.

    `conf` is what the session is to have besides; `daemon`: whether sparklog is installed for the
    Python of all executors, so that its workers start quicker; `checkpoints` False: these stay as
    Spark keeps them. See sparklog.state.session.spark_conf.
    """
    from sparklog.state import session

    return session.spark_conf(conf, daemon=daemon, checkpoints=checkpoints)
