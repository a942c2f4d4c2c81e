"""Message sets of magic 0 and 1, read only. (Being built.)"""

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import BatchHeader, Buffer


def read_entry(buf: Buffer, at: int, *, path: str, position: int, check_crc: bool) -> BatchHeader:
    """The entry at byte `at`, which is all there, as one batch."""
    raise DataCorruptionError("magic 0 and 1 are not read yet", path=path, position=position + at)
