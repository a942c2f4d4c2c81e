"""Free space on a log's disks: what a commit needs, and log.min.free.bytes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from sparklog.errors import StorageUnavailableError
from sparklog.logdir.deleted_files import make_room
from sparklog.logdir.log_manager import LogManager

SPARE_BYTES: Final = 4 << 20  # indexes, the ledger record, the watermark file


class Shortage(NamedTuple):
    """A log dir whose disk has less free than commits leave (`floor_bytes`)."""

    directory: str
    free_bytes: int
    floor_bytes: int


def below_floor(session: LogManager) -> list[Shortage]:
    """Return the log dirs that commits are refused on until something is deleted.

    The service asks this between its rounds and runs retention at once. Cost: a statvfs each.
    """
    floor = max(session.options.min_free_bytes, SPARE_BYTES)
    free = {directory: session.fs.free_bytes(directory) for directory in session.present}
    return [Shortage(path, size, floor) for path, size in free.items() if size < floor]


def check_space(session: LogManager, needed: Mapping[str, int]) -> None:
    """Refuse a commit that a disk has no room for: {log dir: bytes of records it brings there}.

    Log dirs on one disk share its room; the first one's takes the ledger in any case. Deleted
    files that still wait for their delay go before anything is refused. Under the lock.
    Raises: StorageUnavailableError naming the log dir, what is free and what is needed.
    """
    fs, floor = session.fs, session.options.min_free_bytes
    totals: dict[int, tuple[str, int]] = {}
    for directory in dict.fromkeys([session.home, *needed]):
        device, _ = fs.identity(directory)
        _, before = totals.get(device, ("", 0))
        totals[device] = directory, before + needed.get(directory, 0) + SPARE_BYTES
    for directory, size in totals.values():
        free = fs.free_bytes(directory)
        if free - floor < size and make_room(fs, session.directories):
            free = fs.free_bytes(directory)
        if free - floor >= size:
            continue
        kept = f", and log.min.free.bytes keeps {floor}" if floor else ""
        raise StorageUnavailableError(
            f"{directory} has {free} bytes free, this commit needs {size}{kept}; free space on "
            "that disk (`topics delete --now`; lower retention.ms or retention.bytes and let the "
            "service run), then repeat the call: nothing was written, and reads go on"
        )
