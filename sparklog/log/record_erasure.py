"""Erase records from the pieces of a log.

A piece is a segment of a log dir, a copy of a segment in remote storage, or an extent in a bucket.
`erase_records` runs these steps on an `ErasableStore`:

    count     read all pieces, and count the records that the predicate selects
    rewrite   the pieces with such records, without them, and replace the old pieces
    finish    delete the old bytes

If another process changed the pieces in between (retention, compaction, a merge), all pieces are
counted again. After a crash each piece is either old or new; the same call again finishes. A dry
run only counts, and reports what would be rewritten.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from sparklog.errors import SparklogError
from sparklog.format.decoder import OFFSET_MAX
from sparklog.format.erasure import RecordEraser, RecordPredicate
from sparklog.log.batch_windows import Window
from sparklog.storage.erasure_report import ErasedFrom, ErasedOffsets, PartitionErasure

_LOGGER: Final = logging.getLogger("sparklog.service")
_TRIES: Final = 8

Windows = Iterable[tuple[Window, str]]
"""Windows of a log, each with the path for error messages."""


@dataclass(slots=True)
class Tally:
    """The result of counting the records to erase.

    Attributes:
        bytes_read: The number of bytes that were read.
        records: The number of selected records.
        batches: The number of batches with selected records.
        offsets: The offsets of the selected records.
    """

    bytes_read: int = 0
    records: int = 0
    batches: int = 0
    offsets: ErasedOffsets = field(default_factory=ErasedOffsets)


class WindowEraser:
    """Erases records in a segment's windows, in order. For a single pass; not thread-safe.

    Args:
        predicate: Selects the records to erase.
        end: Records from this offset on stay, regardless of the predicate.
        check: Called before each window; an error that it raises ends the work.
    """

    def __init__(
        self,
        predicate: RecordPredicate,
        *,
        end: int = OFFSET_MAX,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._eraser, self._check = RecordEraser(predicate, end=end), check
        self.tally = Tally()

    def count(self, windows: Windows) -> Tally:
        """Count the selected records without changing them."""
        for window, path in windows:
            for _ in self._found(window, path):
                pass
        return self.tally

    def filter(self, window: Window, path: str) -> Iterator[memoryview | bytes | bytearray]:
        """Yield a window's batches without the selected records, in pieces.

        Other batches do not change.

        Raises as `RecordEraser.find`.
        """
        view, table, at = memoryview(window.data), window.batches.table, 0
        for row, erased in self._found(window, path):
            start = int(table["position"][row]) - window.position
            if start > at:
                yield view[at:start]
            yield self._eraser.rewritten(
                view, table[row], erased, path=path, position=window.position
            )
            at = start + int(table["size"][row])
        end = window.batches.end - window.position
        if end > at:
            yield view[at:end]

    def remaining(self, windows: Windows) -> Iterator[memoryview | bytes | bytearray]:
        """Yield the batches of all windows without the selected records; see `filter`."""
        for window, path in windows:
            yield from self.filter(window, path)

    def _found(self, window: Window, path: str) -> Iterator[tuple[int, NDArray[Any]]]:
        self._check()
        batches = window.batches
        self.tally.bytes_read += batches.end - window.position
        for row, erased, offsets in self._eraser.find(
            window.data, batches.table, path=path, position=window.position
        ):
            self.tally.batches += 1
            self.tally.records += len(offsets)
            self.tally.offsets.add(offsets)
            yield row, erased


P = TypeVar("P")


@dataclass(slots=True)
class Rewrite(Generic[P]):
    """A rewrite of one or more pieces (segments, copies or extents) without the erased records.

    Attributes:
        pieces: The pieces that are replaced together.
        report: The report of the pieces' partition.
        place: Where the pieces are stored; see `ErasedFrom`.
        name: The name of the pieces; see `ErasedFrom`.
        base: The first offset of the pieces.
        end: The offset after the pieces.
        size: The size of the pieces in bytes.
        bound: Records from this offset on stay.
        links: See `ErasedFrom`.
    """

    pieces: tuple[P, ...]
    report: PartitionErasure
    place: str
    name: str
    base: int
    end: int
    size: int
    bound: int
    links: int = 0

    def note(self, tallies: Iterable[Tally], size: int) -> None:
        """Add the records that were erased, and the new `size` in bytes, to the report."""
        tallies = list(tallies)
        self.report.erased_from.append(
            ErasedFrom(
                place=self.place, name=self.name, base=self.base, end=self.end,
                batches=sum(tally.batches for tally in tallies),
                records=sum(tally.records for tally in tallies), bytes_before=self.size,
                bytes_after=size, links=self.links,
            )
        )  # fmt: skip
        for tally in tallies:
            self.report.offsets.merge(tally.offsets)


class PieceStore(Protocol[P]):
    """Reads and replaces the pieces of a log: segments, copies of segments, or extents."""

    def report_of(self, piece: P) -> PartitionErasure:
        """Return the report of a piece's partition. Its `end` limits the records to erase."""

    def windows(self, piece: P) -> Windows:
        """Yield (window, path) of a piece: blocks of complete batches, and the path of the log.

        Raises:
            DataCorruptionError: The piece is damaged.
            InvalidRequestError: The piece contains batches of magic 0 or 1.
            SparklogError: Another error of the store.
        """

    def rewrites(self, hits: Mapping[P, Tally], *, dry_run: bool) -> Iterable[Rewrite[P]]:
        """Return the rewrites, in order.

        Except in a dry run, the caller completes each rewrite before it requests the next.

        Args:
            hits: The pieces with selected records.
            dry_run: Whether the caller only reports the rewrites.
        """

    def replace(self, rewrite: Rewrite[P], eraser: WindowEraser) -> int | None:
        """Replace the pieces of a rewrite by the records that `eraser` leaves.

        Returns the size of the new pieces in bytes, or None if no piece had to be replaced. The
        errors are those of `windows`.
        """


class ErasableStore(PieceStore[P], Protocol[P]):
    """The pieces of partitions in a home, which other processes may change.

    Attributes:
        path: The name of the store in messages.
        kind: The name of the pieces in messages.
        changes: The errors of all methods that mean that another process changed the pieces.
    """

    path: str
    kind: str
    changes: tuple[type[Exception], ...]

    def pieces(self) -> Iterable[P]:
        """List the pieces. The errors depend on the store."""

    def finish(self, *, dry_run: bool) -> list[str]:
        """Delete the bytes of replaced pieces, except in a dry run.

        Returns messages about bytes that could not be deleted.
        """


class PieceEraser(Generic[P]):
    """Erases records from pieces of a store, or in a dry run counts them. Not thread-safe.

    `check` is called before each step; an error that it raises ends the work.
    """

    def __init__(
        self,
        store: PieceStore[P],
        predicate: RecordPredicate,
        *,
        check: Callable[[], None] = lambda: None,
        dry_run: bool = False,
    ) -> None:
        self._store, self._predicate = store, predicate
        self._check, self._dry_run = check, dry_run

    def count(self, piece: P) -> Tally:
        """Count the selected records of a piece. The errors are those of `PieceStore.windows`."""
        report = self._store.report_of(piece)
        tally = self._eraser(report.end).count(self._store.windows(piece))
        report.bytes_read += tally.bytes_read
        return tally

    def rewrite(self, hits: Mapping[P, Tally]) -> None:
        """Rewrite the pieces in `hits`, which have selected records; only report it in a dry run.

        `hits` has the counted records of each piece. The errors are those of `PieceStore.replace`.
        """
        for rewrite in self._store.rewrites(hits, dry_run=self._dry_run):
            if self._dry_run:
                tallies = [hits[piece] for piece in rewrite.pieces if piece in hits]
                rewrite.note(tallies, rewrite.size)
                continue
            self._check()
            eraser = self._eraser(rewrite.bound)
            size = self._store.replace(rewrite, eraser)
            if size is not None:
                rewrite.note([eraser.tally], size)

    def _eraser(self, end: int) -> WindowEraser:
        return WindowEraser(self._predicate, end=end, check=self._check)


def erase_records(
    store: ErasableStore[P],
    predicate: RecordPredicate,
    *,
    check: Callable[[], None] = lambda: None,
    dry_run: bool = False,
) -> list[str]:
    """Erase records from all pieces; completed work is in the reports even after an error.

    The arguments are those of `PieceEraser`.

    Returns:
        Messages about bytes that could not be deleted.

    Raises:
        DataCorruptionError: A piece is damaged.
        InvalidRequestError: A piece contains batches of magic 0 or 1.
        SparklogError: Other processes change the pieces too often, or the store fails.

    Cost: reads all pieces once, and pieces with selected records twice.
    """
    eraser = PieceEraser(store, predicate, check=check, dry_run=dry_run)
    for _ in range(_TRIES):
        try:
            counted = ((piece, eraser.count(piece)) for piece in store.pieces())
            eraser.rewrite({piece: tally for piece, tally in counted if tally.records})
            return store.finish(dry_run=dry_run)
        except store.changes as error:
            _LOGGER.info("%s: starting again: %s", store.path, error)
    raise SparklogError(
        f"{store.path}: other processes changed the {store.kind} {_TRIES} times during the "
        "erasure; run it again"
    )
