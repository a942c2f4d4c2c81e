"""Kafka's storage engine as a library inside Spark.

import sparklog
with sparklog.open("/data/log", mode="rw") as log:
    log.create_topic("flights", partitions=4)
    log.append("flights", pa.table({"key": ["N14228"], "value": ["{...}"]}))
    for batch in log.read("flights"): ...

- `datasource`, `source`, `sink`, `state`: Spark: the data source, reading, writing, checkpoints
- `cli`, `tools`: commands, and what they do as functions; `checkpoint`: a query's checkpoint
- `service`: background work on a log: retention, compaction, tiering, checks
- `tiered`: closed segments in object storage, and a bucket alone; `diskless`: a log in a bucket
- `log`: a log, whatever its home; `logdir`: the home on disk
- `storage`: what a home is, as protocols; `fs`: local files; `format`: Kafka's bytes
- `testing`: contracts of the protocols, disks and stores that fail
- `config`, `configdef`: options; `errors`; `metrics`; `clock`; `common`: topic-partitions
- `extras`: optional libraries; `lru_cache`, `pluralize`: small helpers
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sparklog.errors import (
    BatchConflictError,
    CommitUnknownError,
    DataCorruptionError,
    FencedError,
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
    """Open a log directory (several joined by ","), or an archive by its URL; a context manager.

    Args:
        path: the log dir or dirs. In mode "rw" it is made where it doesn't exist; a directory
            that a broker left is taken over as it is. Or the URL that tiered segments were copied
            to, s3://bucket/prefix: all tiered topics are then read from there alone, mode "r".
        mode: "r" takes no lock and changes nothing; "rw" writes.
        storage_options: fsspec's, for remote segments: {"endpoint_url": ..., "key": ...}. They
            are never written down.
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
    from sparklog.logdir.home import open_log
    from sparklog.logdir.paths import check_writable, split_path
    from sparklog.tiered.opening import read_side
    from sparklog.tiered.reading.options import RemoteOptions

    if mode != "r":
        check_writable(split_path(path))
    remote, rest = RemoteOptions.parse(options or {})
    reads = read_side(
        path, options=remote, storage_options=storage_options, fs=fs, until=until, stopped=stopped
    )
    if reads.is_archive and mode != "r":
        raise InvalidRequestError(
            f"{path} is an archive, which is read-only: use mode='r', or restore it to a log dir "
            "(sparklog tier restore)"
        )
    return open_log(path, fs=reads.fs, view=reads.open_view, mode=mode, options=rest, **components)


def register(spark: "SparkSession") -> None:
    """Make `format("sparklog")` known to a Spark session, where it isn't found by itself.

    Needed where the package came by `--py-files` or `addPyFile`; an installed one is found.
    """
    from sparklog.datasource import SparklogDataSource

    spark.dataSource.register(SparklogDataSource)


def enable(spark: "SparkSession") -> None:
    """Make `format("sparklog")` known, and keep the checkpoints of new queries as logs.

    For a session that runs; `spark_conf` gives a session that is to be built more than that. See
    sparklog.state.session.enable for what it sets and raises.
    """
    from sparklog.state import session

    session.enable(spark)
    register(spark)


def spark_conf(
    conf: Mapping[str, str] | None = None, *, daemon: bool | None = None
) -> dict[str, str]:
    """Return the settings of a session to be built: log-backed checkpoints, quick Python workers.

    `conf` is what the session is to have besides; `daemon`: whether sparklog is installed for the
    Python of all executors. See sparklog.state.session.spark_conf.
    """
    from sparklog.state import session

    return session.spark_conf(conf, daemon=daemon)
