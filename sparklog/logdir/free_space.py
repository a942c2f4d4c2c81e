"""Free space on a log's disks: the needs of a commit, and log.min.free.bytes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklog.errors import StorageUnavailableError
from sparklog.logdir.deleted_files import make_room
from sparklog.logdir.log_manager import LogManager

SPARE_BYTES: Final = 4 << 20  # indexes, the ledger record, the watermark file


class Shortage(NamedTuple):
    """A log dir with less free disk space than commits must leave.

    Attributes:
        directory: The log dir.
        free_bytes: The free space.
        floor_bytes: The space that commits must leave.
    """

    directory: str
    free_bytes: int
    floor_bytes: int


def below_floor(manager: LogManager) -> list[Shortage]:
    """Return the log dirs with less free space than the minimum, where commits are rejected.

    The service calls this between its rounds, and if there are any, runs retention immediately.
    Cost: a statvfs per log dir.
    """
    floor = max(manager.options.min_free_bytes, SPARE_BYTES)
    free = {path: manager.fs.free_bytes(path) for path in manager.offline.dirs.present}
    return [Shortage(path, size, floor) for path, size in free.items() if size < floor]


def check_space(manager: LogManager, needed: Mapping[str, int]) -> None:
    """Reject a commit that exceeds a disk's free space. The caller holds the write lock.

    Deleted files that wait for their delay are removed before a commit is rejected.

    Args:
        manager: The log.
        needed: {log dir: bytes of records}.

    Raises:
        StorageUnavailableError: A disk has too little space. The message has the log dir, its free
            space and the needed space.
    """
    fs, floor = manager.fs, manager.options.min_free_bytes
    totals: dict[int, tuple[str, int]] = {}
    for directory in dict.fromkeys([manager.home, *needed]):
        device, _ = fs.identity(directory)
        _, before = totals.get(device, ("", 0))
        # Log dirs on the same disk share its space. The first log dir's disk also takes the ledger.
        totals[device] = directory, before + needed.get(directory, 0) + SPARE_BYTES
    for directory, size in totals.values():
        free = fs.free_bytes(directory)
        if free - floor < size and make_room(fs, manager.directories):
            free = fs.free_bytes(directory)
        if free - floor >= size:
            continue
        reserve = f", and log.min.free.bytes reserves {floor}" if floor else ""
        raise StorageUnavailableError(
            f"{directory} has {free} bytes free, but this commit needs {size}{reserve}. Reads "
            "continue. Free space on that disk (`topics delete --now`; lower retention.ms or "
            "retention.bytes and let the service run), then repeat the call"
        )
