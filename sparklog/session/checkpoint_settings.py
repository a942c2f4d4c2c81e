"""Settings of the checkpoint manager, as part of Spark's session conf.

The JVM reads them (LogDir.scala, Durable.scala) when a query starts. This module documents them for
the reference page, and tests compare both.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.configdef import INT_MAX, LONG_MAX, Key, keys_of, option

PREFIX: Final = "spark.sparklog.checkpoint."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Names and defaults of the settings."""

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


CHECKPOINT_KEYS: Final[dict[str, Key]] = keys_of(CheckpointSettings)
