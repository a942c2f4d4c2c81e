"""Checks of batches that are to be appended."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import InvalidRequestError, RecordTooLargeError
from sparklog.format.scan import Batches, scan
from sparklog.fs import File
from sparklog.log.walk import walk

Table = NDArray[Any]


def scan_file(file: File) -> Batches:
    """Find the whole batches of a file, without a look at CRCs, in bounded memory.

    A map would be quicker, but each page that it touches counts as memory of this process.
    """
    windows = [window.batches for window in walk(file, check_crc=False)]
    if not windows:
        return scan(b"", path=file.path)
    tables = np.concatenate([found.table for found in windows])
    return Batches(tables, windows[-1].end, windows[-1].error)


def checked(found: Batches, size: int, *, what: str, batch_bytes_max: int) -> Table:
    """Return the table of `size` bytes of whole v2 batches with consecutive offsets.

    Raises: InvalidRequestError: they are something else. RecordTooLargeError: a batch is larger
    than a segment may be. CRCs are the scan's business.
    """
    table = found.table
    if found.error is not None or found.end != size:
        reason = found.error.reason if found.error else "the last batch is not whole"
        raise InvalidRequestError(f"{what} is damaged at byte {found.end}: {reason}")
    if not len(table):
        return table
    gaps = table["base_offset"][1:] != table["last_offset"][:-1] + 1
    if gaps.any() or (table["magic"] != 2).any():
        raise InvalidRequestError(f"{what}: want v2 batches without offset gaps")
    largest = int(table["size"].max())
    if largest > batch_bytes_max:
        raise RecordTooLargeError(
            f"{what}: a record batch of {largest} bytes exceeds segment.bytes={batch_bytes_max}; "
            "raise that, or make the batches smaller"
        )
    return table
