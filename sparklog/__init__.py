"""Kafka's storage engine as a library inside Spark.

import sparklog
with sparklog.open("/data/log", mode="rw") as log:
    log.create_topic("flights", partitions=4)
    log.append("flights", pa.table({"key": ["N14228"], "value": ["{...}"]}))
    for batch in log.read("flights"): ...

Public packages, with their exports in docs/api/:

- `sparklog`: open a log, set up a Spark session
- `sink`: write to a log from Spark
- `service`: retention, compaction and tiering in the background; verification, health, erasure
- `checkpoint`: read, verify, reset, fork and back up the checkpoint of a streaming query
- `kafka`: serve a log to Kafka clients
- `tiered`: object stores, key rings of encrypted copies, restore from an archive
- `testing`: simulated crashes and faults, contracts, Hypothesis strategies

All other modules are internal and can change in any release:

- `datasource`, `source`: the Spark data source and its readers; `session`: the settings of Spark
  sessions; `jvm`: Scala code
- `state`: reads and writes the state of queries, for `checkpoint`
- `cli`, `tools`: the commands, and their implementation; `ui`: the pages of a log
- `opening`: opens a path or URL; `log`: the engine; `storage`: protocols of homes
- `logdir`, `diskless`: the homes: a log dir, a bucket
- `fs`: local files; `format`: Kafka's file formats; `network`: addresses and certificates
- `config`, `configdef`: options; `errors`; `metrics`; `clock`; `common`: topic-partitions
- `progress`, `html`: output in notebooks; `spark_errors`: errors as Spark shows them
- `spark_support`: the supported versions of Spark; `spark_versions`: names that differ in them
- `worker_package`: workers without sparklog; `zipped`: the package in a zip; `extras`: optional
  libraries
- `lazy_exports`: exports that are imported on first use
- `lru_cache`, `pluralize`, `quantities`, `secret_digest`, `text_checks`: small helpers
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
from sparklog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparklog.common import TopicPartition
    from sparklog.config import TopicConfig
    from sparklog.format.compression import Codec
    from sparklog.log.commit import CommitResult, Identity
    from sparklog.log.log import Log
    from sparklog.log.reader_reset import PlannedOffset, ResetPlan
    from sparklog.session.doctor import DoctorReport, Examined
    from sparklog.storage.commits import Chunk
    from sparklog.storage.deleted_topic import DeletedTopicInfo
    from sparklog.storage.group_members import GroupAtWork, Member
    from sparklog.storage.home import GivenUp, MovedPartition
    from sparklog.storage.staging import Framing, Stager
    from sparklog.storage.view import TopicInfo, Topics
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Chunk": "sparklog.storage.commits",
            "Codec": "sparklog.format.compression",
            "CommitResult": "sparklog.log.commit",
            "DeletedTopicInfo": "sparklog.storage.deleted_topic",
            "DoctorReport": "sparklog.session.doctor",
            "Examined": "sparklog.session.doctor",
            "Framing": "sparklog.storage.staging",
            "GivenUp": "sparklog.storage.home",
            "GroupAtWork": "sparklog.storage.group_members",
            "Identity": "sparklog.log.commit",
            "Log": "sparklog.log.log",
            "Member": "sparklog.storage.group_members",
            "MovedPartition": "sparklog.storage.home",
            "PlannedOffset": "sparklog.log.reader_reset",
            "ResetPlan": "sparklog.log.reader_reset",
            "Stager": "sparklog.storage.staging",
            "TopicConfig": "sparklog.config",
            "TopicInfo": "sparklog.storage.view",
            "TopicPartition": "sparklog.common",
            "Topics": "sparklog.storage.view",
        },
    )

__version__ = "0.1.0"

__all__ = [
    "BatchConflictError",
    "Chunk",
    "Codec",
    "CommitResult",
    "CommitUnknownError",
    "DataCorruptionError",
    "DeletedTopicInfo",
    "DoctorReport",
    "Examined",
    "FencedError",
    "Framing",
    "GivenUp",
    "GroupAtWork",
    "GroupNotEmptyError",
    "Identity",
    "InvalidRequestError",
    "Log",
    "LogLockedError",
    "LogReplacedError",
    "Member",
    "MovedPartition",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PartitionOfflineError",
    "PlannedOffset",
    "RecordTooLargeError",
    "ResetPlan",
    "SparklogError",
    "Stager",
    "StorageUnavailableError",
    "TopicConfig",
    "TopicInfo",
    "TopicPartition",
    "TopicReplacedError",
    "Topics",
    "UnknownTopicError",
    "UnsupportedVersionError",
    "doctor",
    "enable",
    "open",
    "register",
    "spark_conf",
]


def _unpack_kernel() -> None:
    archive: str | None = getattr(__spec__.loader, "archive", None)
    if archive is not None:  # the package is imported from a zip
        from sparklog import zipped

        zipped.use_kernel(archive)


_unpack_kernel()


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
    """Open a log: a log dir, several log dirs, a log in a bucket, or an archive.

    Args:
        path: A directory, several directories joined by ",", or a URL such as s3://bucket/prefix.
            Mode "rw" creates a missing log: a log dir, or at a URL a log in a bucket, which any
            number of hosts can write and read. A directory that a Kafka broker wrote can be opened
            too. A URL that segments were tiered to opens as an archive of all tiered topics, in
            mode "r" only.
        mode: "r" reads, without locks or changes; "rw" also writes.
        storage_options: Options of fsspec for the object store, such as {"endpoint_url": ...,
            "key": ...}. By default the store uses its environment variables and profiles. The
            options are never stored. A log dir without remote storage accepts none.
        options: Options of the log by their Kafka names ("log.retention.hours", "flush", ...), and
            options for remote segments ("remote.cache.directory", "remote.keyring", ...). All are
            listed in docs/options.md.
        until: How far to read a directory that a running broker writes: "high-watermark" reads up
            to the broker's checkpoint, "log-end" up to the last complete record batch.
        stopped: Called while a read waits for a store that does not respond
            (`remote.patience.ms`); once it returns True, the store's error is raised.
        fs: The file system; for tests.
        components: `clock`, the current time in milliseconds since the epoch; for tests.

    Returns:
        The open log, a context manager.

    Raises:
        InvalidRequestError: The path, the mode or an option is invalid.
        LogLockedError: The lock is held by another process, such as a Kafka broker.
        DataCorruptionError: The log is damaged.
        UnsupportedVersionError: A newer sparklog wrote the log.
        StorageUnavailableError: The disk or the store does not respond.

    Cost:
        A closed log dir costs a few file reads. After a crash, mode "rw" recovers the log first,
        which reads the segments that were written since the last recovery point.

    Examples:
        >>> with sparklog.open("new-log", mode="rw") as new_log:
        ...     info = new_log.create_topic("alerts", config={"retention.ms": 86_400_000})
        ...     ends = new_log.append("alerts", pa.table({"key": ["N14228"], "value": ["late"]}))
        >>> ends
        {'alerts': {0: (0, 1)}}
    """
    from sparklog.opening import open_log, refuse_unused_storage_options

    refuse_unused_storage_options(path, storage_options, mode, fs)
    return open_log(
        path, mode=mode, storage_options=storage_options, options=options, until=until,
        stopped=stopped, fs=fs, **components,
    )  # fmt: skip


def register(spark: "SparkSession") -> None:
    """Register the data source `format("sparklog")` in a Spark session.

    Spark finds the data source automatically if sparklog is installed for the Python of its
    workers. Call this function if sparklog was shipped with `--py-files` or `addPyFile`.

    Args:
        spark: The session.

    Raises:
        InvalidRequestError: The Python of the workers cannot import sparklog.

    Source: Spark's DataSourceRegistration.

    Examples:
        >>> sparklog.register(spark)
        >>> source = spark.read.format("sparklog").option("path", log.path)
        >>> source.option("subscribe", "flights").load().count()
        600
    """
    from sparklog import datasource

    datasource.register(spark)


def enable(spark: "SparkSession", *, checkpoints: bool = True) -> None:
    """Set up a running Spark session: the data source, the jar, and checkpoints as logs.

    Running queries are not changed. `spark_conf` returns more settings, which only a new session
    can use.

    Args:
        spark: The session.
        checkpoints: Whether the checkpoints of new queries are stored as logs.

    Raises:
        InvalidRequestError: The session is a Spark Connect session, the Python of its workers
            cannot import sparklog, or the jar cannot be compiled. The session is not changed.

    Cost:
        The first call for a Spark version compiles the jar, which takes about 10 seconds.

    Examples:
        >>> sparklog.enable(spark, checkpoints=False)
    """
    from sparklog.session import setup

    setup.refuse_connect(spark)
    register(spark)
    setup.enable(spark, checkpoints=checkpoints)


def doctor(spark: "SparkSession", checkpoint: str | None = None) -> "DoctorReport":
    """Examine whether a Spark session can use all of sparklog, and report what is missing.

    Args:
        spark: The session.
        checkpoint: The location of a checkpoint, to learn whether it would be stored as a log.

    Returns:
        The versions of Spark, Scala, Java, Hadoop and sparklog; the jar, and whether the JVM or
        Python reads and writes logs; the checkpoint manager; the Python of the workers and its
        sparklog. `print` shows it, and what to do about each fault.

    Cost:
        Runs a Spark job of 8 small tasks.

    Examples:
        >>> report = sparklog.doctor(spark, checkpoint="file:///tmp/checkpoint")
        >>> [line.subject for line in report.lines]
        ['Spark', 'driver', 'jar', 'data path', 'checkpoints', 'workers']
        >>> report.ok
        True
    """
    from sparklog.session.doctor import examine

    return examine(spark, checkpoint)


def spark_conf(
    conf: Mapping[str, str] | None = None, *, daemon: bool | None = None, checkpoints: bool = True
) -> dict[str, str]:
    """Return the settings for a new Spark session.

    With these settings the JVM reads and writes logs itself, checkpoints are stored as logs, and
    Python workers start faster.

    Args:
        conf: Other settings of the session. They take precedence and are part of the result;
            sparklog's jar is added to `spark.jars`.
        daemon: Whether executors run sparklog's daemon of Python workers. sparklog must then be
            installed for their Python; --py-files is not enough. By default the daemon is used
            with a local master, if the Python of the workers can import it.
        checkpoints: Whether checkpoints are stored as logs.

    Returns:
        {Spark setting: value}.

    Raises:
        InvalidRequestError: The jar cannot be compiled, or a given jar belongs to another version
            of sparklog or Spark.

    Cost:
        The first call for a Spark version compiles the jar, which takes about 10 seconds, unless
        `spark.jars` or $SPARKLOG_JAR names a jar.

    Examples:
        >>> builder = type(spark).builder.appName("flights")
        >>> for key, value in sparklog.spark_conf().items():
        ...     builder = builder.config(key, value)
    """
    from sparklog.session import setup

    return setup.spark_conf(conf, daemon=daemon, checkpoints=checkpoints)
