"""The log dirs of a report, online or offline, and the partitions missing from them."""

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
    """Log dirs by state; `offline`: path -> reason."""

    online: list[str] = field(default_factory=list)
    offline: dict[str, str] = field(default_factory=dict)
    free_bytes: dict[str, int | None] = field(default_factory=dict)

    @property
    def notices(self) -> list[Notice]:
        """A notice for each log dir that is offline."""
        return [
            Notice(severity=Severity.DAMAGE, where=path, what=f"log dir offline: {why}")
            for path, why in self.offline.items()
        ]


def find_directories(fs: FileSystem, paths: Sequence[str], *, archive: bool) -> Directories:
    """Check the log dirs.

    The first one, with the ledger, must exist: opening it raises otherwise.
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
                found.online.append(path)  # opened for its error
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
    """Return notices about partitions of the log that are in no log dir that can be read."""
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
        topics = read_topics(fs, found.online[0]) or {}  # some may have been deleted meanwhile
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
        what = f"partitions are in log dirs that the path doesn't name: {listed}"
    else:
        what = f"partitions are missing: {listed}"
    return Notice(severity=Severity.DAMAGE, where=where, what=what)


def sized(found: Directories, partitions: Sequence[PartitionReport]) -> tuple[DirectoryReport, ...]:
    """Return the log dirs, each with its partitions and bytes."""
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
    """Return notices about partitions that writers took offline, unless they have one already."""
    page = peek(fs, home)
    found = {} if page is None else page.offline
    known = {notice.where for notice in told}
    return [
        Notice(severity=Severity.DAMAGE, where=f"{t}-{p}", what=f"offline: {error}")
        for (t, p), error in sorted(found.items())
        if f"{t}-{p}" not in known
    ]
