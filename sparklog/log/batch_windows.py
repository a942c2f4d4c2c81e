"""Walk the batches of a segment's log in windows of bounded size."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sparklog.format.batch import LOG_OVERHEAD, unpack_header
from sparklog.format.control import ControlType, Marker, read_marker
from sparklog.format.scan import Batches, scan
from sparklog.storage.segments import SegmentLog

WINDOW_BYTES: Final = 4 << 20
_HEAD_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """A block of a file: bytes, their position, and the complete batches in them."""

    data: bytes | memoryview
    position: int
    batches: Batches


def walk(
    file: SegmentLog,
    *,
    start: int = 0,
    limit: int | None = None,
    check_crc: bool = True,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Window]:
    """Yield the complete batches in the bytes [start, limit) of a segment's log, window by window.

    `start` must be the position of a batch. If damage ends the walk, the last window has
    `batches.error` set; otherwise the remaining bytes, if any, are a torn batch. An empty range
    yields no window.
    """
    limit = file.size() if limit is None else limit
    at, span = start, window_bytes
    while at < limit:
        data = file.pread(min(span, limit - at), at)
        batches = scan(data, path=file.path, position=at, check_crc=check_crc)
        yield Window(data, at, batches)
        if batches.error is not None:
            return
        if batches.end == at:  # no complete batch: torn, or larger than the window
            needed = int.from_bytes(data[8:LOG_OVERHEAD], "big") + LOG_OVERHEAD
            # A crash leaves a torn batch at the end. Callers know whether one is expected there.
            if len(data) < LOG_OVERHEAD or needed <= len(data) or at + needed > limit:
                return
            span = needed
        else:
            at, span = batches.end, window_bytes


def first_timestamp(file: SegmentLog, *, check_crc: bool = False) -> int | None:
    """Return the largest timestamp (ms) of a segment's first batch, or None if it can't be read."""
    for window in walk(file, check_crc=check_crc, window_bytes=_HEAD_BYTES):
        if len(window.batches):
            return int(window.batches.table["max_timestamp"][0])
    return None


def marker_reader(window: Window, path: str) -> Callable[[Any], Marker | None]:
    """Return a function that reads the transaction marker in a control batch of a window.

    Its argument is the batch's row in the window's table. It returns None if the batch has no
    marker.
    """

    def read(row: Any) -> Marker | None:
        if row["count"] == 0:
            return None  # the cleaner emptied the batch
        at = int(row["position"]) - window.position
        header = unpack_header(window.data, at)
        return read_marker(window.data, at, header, path=path, position=window.position)

    return read


def abort_reader(window: Window, path: str) -> Callable[[Any], bool]:
    """Return a function that returns whether a control batch of a window aborts a transaction.

    Its argument is the batch's row in the window's table.
    """
    read = marker_reader(window, path)

    def is_abort(row: Any) -> bool:
        marker = read(row)
        return marker is not None and marker.type is ControlType.ABORT

    return is_abort
