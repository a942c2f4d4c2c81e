"""The ledger's end, checked against the end that was published as durable.

Opening, recovery and the health check use this module.
"""

from collections.abc import Callable

from sparklog.errors import DataCorruptionError
from sparklog.fs import FileSystem
from sparklog.logdir.detection import has_lost_ledger
from sparklog.logdir.high_watermarks import published
from sparklog.logdir.ledger import fold, has_ledger, ledger_path, whole_end
from sparklog.logdir.repair_advice import REBUILDS_LEDGER
from sparklog.storage.log_state import LogState


def checked_end(
    fs: FileSystem, home: str, find_end: Callable[[], int] | None = None
) -> int:
    """Return the offset after the ledger's last complete record.

    Cost: reads the ledger's newest segment (at most 16 MiB) and a small file.

    Args:
        fs: The file system.
        home: The first log dir.
        find_end: Finds the end; `whole_end` by default.

    Raises:
        DataCorruptionError: The ledger is missing or damaged, or ends below the end that was
            published as durable.
    """
    if not has_ledger(fs, home):
        raise DataCorruptionError(
            f"the commit ledger is missing; {REBUILDS_LEDGER}", path=ledger_path(home)
        )
    marks = published(fs, home)  # first, because the ledger may grow
    end = whole_end(fs, home) if find_end is None else find_end()
    floor = 1 if marks is None else max(marks.durable, 1)
    if end < floor:
        raise DataCorruptionError(
            f"the commit ledger ends at offset {end}, but {floor} records were durable: its tail "
            f"is damaged or missing; {REBUILDS_LEDGER}",
            path=ledger_path(home),
            first=end,
            end=floor,
        )
    return end


def ledger_fault(fs: FileSystem, home: str) -> DataCorruptionError | None:
    """Return the error that opening the ledger would raise; None without an error.

    Raises:
        UnsupportedVersionError: A newer sparklog wrote the ledger.

    Cost:
        Reads the ledger's newest segment twice.
    """
    if not has_ledger(fs, home) and not has_lost_ledger(fs, home):
        return None
    try:
        fold(fs, home, checked_end(fs, home), state=LogState(), first=None)
    except DataCorruptionError as error:
        return error
    return None
