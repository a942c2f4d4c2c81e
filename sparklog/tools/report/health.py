"""The verdict of a report: can the log be written, and which of its partitions are offline."""

from collections.abc import Mapping, Sequence

from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.fs import FileSystem
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.free_space import SPARE_BYTES
from sparklog.logdir.lock import is_failing, peek
from sparklog.service import Severity
from sparklog.storage.topic_state import TopicState
from sparklog.tools.report.directories import Directories
from sparklog.tools.report.model import HealthReport, Notice, PartitionReport


def offline_notices(fs: FileSystem, home: str, told: Sequence[Notice]) -> list[Notice]:
    """Tell of partitions that writers took offline, but for those of which something is told."""
    page = peek(fs, home)
    found = {} if page is None else page.offline
    known = {notice.where for notice in told}
    return [
        Notice(severity=Severity.DAMAGE, where=f"{t}-{p}", what=f"offline: {error}")
        for (t, p), error in sorted(found.items())
        if f"{t}-{p}" not in known
    ]


def judge(
    fs: FileSystem,
    found: Directories,
    paths: Sequence[str],
    topics: Mapping[str, TopicState] | None,
    partitions: Sequence[PartitionReport],
    *,
    archive: bool,
) -> HealthReport:
    """Return the verdict. `topics`: the log's own list; None of a broker's log dirs.

    Cost: a look at the lock file, and one at a lock a log dir.
    """
    offline = {TopicPartition(p.topic, p.partition) for p in partitions if p.error is not None}
    if archive or topics is None:
        return HealthReport(offline=_names(offline))
    here = {TopicPartition(p.topic, p.partition) for p in partitions}
    wanted = {
        TopicPartition(t, p) for t, topic in topics.items() if t not in INTERNAL for p in topic.dirs
    }
    home = found.online[0]
    page = peek(fs, home)
    held = {} if page is None else page.offline
    offline |= (wanted - here) | (held.keys() & wanted)
    why = [f"log dir {path} is offline: {said}" for path, said in found.offline.items()]
    for path, free in found.free_bytes.items():
        if free is not None and free < SPARE_BYTES:
            why.append(f"{path} has {free} bytes free")
    for number, path in enumerate(paths):
        if path not in found.offline and _failed(fs, home, number):
            why.append(f"a process failed when it last wrote to {path}")
    return HealthReport(writable=not why, why=tuple(why), offline=_names(offline))


def _failed(fs: FileSystem, home: str, number: int) -> bool:
    try:
        return is_failing(fs, home, number)
    except (SparklogError, FileNotFoundError):
        return False


def _names(keys: set[TopicPartition]) -> tuple[str, ...]:
    return tuple(f"{topic}-{partition}" for topic, partition in sorted(keys))
