"""The log dirs of a report: which are online or offline, and which partitions are missing."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.errors import SparklogError
from sparklog.format.names import partition_dir
from sparklog.fs import FileSystem
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.lock import peek
from sparklog.logdir.topics_file import read_topics
from sparklog.service import Severity
from sparklog.storage.topic_state import TopicState
from sparklog.ui.report.model import DirectoryReport, Notice, PartitionReport

_NAMED = 5  # partitions named in one notice


@dataclass(slots=True)
class Directories:
    """The log dirs of a log by state. `offline`: the reason by path."""

    online: list[str] = field(default_factory=list)
    offline: dict[str, str] = field(default_factory=dict)
    free_bytes: dict[str, int | None] = field(default_factory=dict)

    @property
    def notices(self) -> list[Notice]:
        """The notices about offline log dirs."""
        return [
            Notice(severity=Severity.DAMAGE, where=path, what=f"the log dir is offline: {why}")
            for path, why in self.offline.items()
        ]


def find_directories(fs: FileSystem, paths: Sequence[str], *, archive: bool) -> Directories:
    """Find out which log dirs can be read.

    The first log dir contains the ledger. If it is missing, it is listed as online, so that opening
    the log raises the error.
    """
    found = Directories()
    for at, path in enumerate(paths):
        try:
            if archive:
                found.free_bytes[path] = None
            else:
                fs.listdir(path)
                found.free_bytes[path] = fs.free_bytes(path)
            found.online.append(path)
        except FileNotFoundError:
            if not at:
                found.online.append(path)  # opening the log raises a better error
            else:
                found.offline[path] = "it does not exist"
        except SparklogError as error:
            if not at:
                raise
            found.offline[path] = str(error)
    return found


def missing_partitions(
    fs: FileSystem, found: Directories, topics: Mapping[str, TopicState], paths: Sequence[str]
) -> list[Notice]:
    """Return notices about partitions of the log that no readable log dir contains."""
    missing: dict[str, list[str]] = {}
    for name, topic in sorted(topics.items()):
        for partition, number in sorted(topic.dirs.items()):
            where = paths[number] if number < len(paths) else ""
            if name in INTERNAL:
                continue
            if where in found.offline or not fs.is_dir(
                os.path.join(where, partition_dir(name, partition))
            ):
                missing.setdefault(where, []).append(partition_dir(name, partition))
    if any(where and where not in found.offline for where in missing):
        # Read again: a topic that was deleted since the first read is not missing.
        topics = read_topics(fs, found.online[0]) or {}
    notices = []
    for where, names in missing.items():
        left = [n for n in names if n.rpartition("-")[0] in topics]
        if left:
            notices.append(_notice(where, left))
    return notices


def _notice(where: str, names: list[str]) -> Notice:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listed = ", ".join(names[:_NAMED]) + more
    if not where:
        what = f"partitions are in log dirs that are not in the log's path: {listed}"
    else:
        what = f"partitions are missing: {listed}"
    return Notice(severity=Severity.DAMAGE, where=where, what=what)


def sized(found: Directories, partitions: Sequence[PartitionReport]) -> tuple[DirectoryReport, ...]:
    """Return the number of partitions and the size of each log dir."""
    held: dict[str, list[PartitionReport]] = {}
    for partition in partitions:
        held.setdefault(os.path.dirname(partition.directory), []).append(partition)
    online = [
        DirectoryReport(
            path=path,
            partitions=len(held.get(path, [])),
            bytes=sum(p.local_bytes or p.remote_bytes for p in held.get(path, [])),
            free_bytes=found.free_bytes.get(path),
        )
        for path in found.online
    ]
    offline = [
        DirectoryReport(path=path, partitions=0, bytes=0, free_bytes=None, offline=why)
        for path, why in found.offline.items()
    ]
    return (*online, *offline)


def offline_notices(fs: FileSystem, home: str, told: Sequence[Notice]) -> list[Notice]:
    """Return notices about partitions that a writer took offline.

    Partitions with a notice in `told` are skipped.
    """
    page = peek(fs, home)
    found = {} if page is None else page.offline
    known = {notice.where for notice in told}
    return [
        Notice(severity=Severity.DAMAGE, where=f"{t}-{p}", what=f"offline: {error}")
        for (t, p), error in sorted(found.items())
        if f"{t}-{p}" not in known
    ]
