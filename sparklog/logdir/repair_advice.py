"""Advice in errors about damaged files that can be rebuilt with `sparklog verify --repair`."""

from typing import Final

from sparklog.errors import DataCorruptionError

REPAIR: Final = "`sparklog verify PATH --repair`"
"""The command. PATH stands for the log's directories, which the code for a single file lacks."""
REBUILDS_FILE: Final = f"{REPAIR} rebuilds this file from the log"
REBUILDS_LEDGER: Final = (
    f"{REPAIR} rebuilds the ledger from the records that survive in it and from the files that "
    "contain the same facts, and reports what is lost; or restore the ledger from a copy"
)


def rebuilt_by_repair(error: DataCorruptionError) -> DataCorruptionError:
    """Return the error of a damaged derived file, with the advice that rebuilds the file."""
    return DataCorruptionError(
        f"{error.reason}; {REBUILDS_FILE}", path=error.path, position=error.position
    )
