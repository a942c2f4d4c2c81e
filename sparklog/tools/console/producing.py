"""Appends records from files or a pipe to a topic, in bounded commits or as a micro-batch."""

import contextlib
import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRequestError, RecordTooLargeError
from sparklog.log.commit import Identity
from sparklog.log.log import Log
from sparklog.storage.staging import Framing, chunk_label
from sparklog.tools.console.input_files import Linger, Readable, Source, Stopped
from sparklog.tools.console.input_formats import Lines, batches

COMMIT_BYTES: Final = 64 << 20
"""Without an identity, a commit has about this many bytes of Arrow data."""

_READ: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class Produced:
    """The offset ranges {partition: (first, end)} that were written, over all `commits`.

    Attributes:
        replayed: Whether the micro-batch had been committed before. Then no records were written,
            and the ranges are from the earlier commit.
        stopped: Whether a signal ended the input.
    """

    topic: str
    records: int = 0
    commits: int = 0
    replayed: bool = False
    stopped: bool = False
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, spans: dict[int, tuple[int, int]]) -> None:
        """Add a commit."""
        self.commits += 1
        for p, (first, end) in spans.items():
            self.offsets[p] = (min(first, self.offsets.get(p, (first, end))[0]), end)


class Records:
    """The records of several open binary files, in sequence.

    The constructor reads the first block, so that an error in this block is raised before a log or
    topic is created.
    """

    def __init__(
        self,
        topic: str,
        files: Sequence[tuple[str, BinaryIO]],
        *,
        form: str = "lines",
        lines: Lines | None = None,
        partition: int | None = None,
        seen: Callable[[int], None] = lambda size: None,
        linger_ms: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read the first block of the files.

        Args:
            topic: The topic to append to.
            files: (name, file) pairs. Error messages contain the name.
            form: See `input_formats.batches`.
            lines: See `input_formats.batches`.
            partition: The partition of all records. By default `Log.append` chooses partitions.
            seen: Called with the number of bytes read.
            linger_ms: The longest time that lines and JSON from a pipe wait for more input. Parquet
                and CSV are committed when there is enough data, or at the end.
            stopped: If this function returns True, the input ends, and an incomplete last record is
                discarded.

        Raises:
            InvalidRequestError: The input is invalid. The message has the file and the line.
            Stopped: The input was stopped before the first block.
        """
        self.topic, self.partition = topic, partition
        # With the options: the same bytes in another format or to another partition are other
        # content, which must be a BatchConflictError and not a replay.
        self.digest = hashlib.sha256(repr((topic, form, lines, partition)).encode())
        self.linger = Linger(linger_ms)
        how: Any = {"linger": self.linger, "stopped": stopped}
        sources = [(name, Source(file, self.digest, seen, **how), file) for name, file in files]
        rows = _rows(sources, form, lines)
        # Read now: an invalid first block must be an error before --create makes a log and a topic.
        self._rows = itertools.chain(list(itertools.islice(rows, 1)), rows)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._rows


def produce(
    log: Log,
    records: Records,
    *,
    framing: Framing | None = None,
    writer: str | None = None,
    batch: int | None = None,
) -> Produced:
    """Append records to their topic.

    With `writer` and `batch` all files are written as this micro-batch of the writer, in a single
    atomic commit of any size. A repeated call with the same bytes writes no records. Without them a
    commit has about COMMIT_BYTES, or the input of `linger_ms`, and earlier commits remain after a
    failure or a stop.

    Also raises the errors of `Log.append`.

    Raises:
        InvalidRequestError: The input is invalid. The message has the file and the line.
        BatchConflictError: The batch was committed before with other content.
    """
    if (writer is None) != (batch is None):
        raise InvalidRequestError("writer and batch require each other: pass both, or none of them")
    if writer == "":
        raise InvalidRequestError("writer is empty: pass a name")
    if batch is not None and batch < 0:
        raise InvalidRequestError(f"batch must be at least 0; got {batch}")
    topic, partition, framing = records.topic, records.partition, framing or Framing()
    if writer is None or batch is None:
        return _in_commits(log, records, framing)
    done = Produced(topic=topic)
    stager = log.stager(framing, label=chunk_label(writer, batch))
    largest = _Largest()
    try:
        info = log.topic(topic)
        with largest.named():
            for part in records:
                largest.observe(part)
                stager.add(info, part, partition=partition)
                done.records += part.num_rows
            chunks = stager.finish()
        # Only now: the digest covers all bytes of the input when the last block has been read.
        identity = Identity(writer=writer, batch=batch, fingerprint=records.digest.hexdigest())
        result = log.commit(chunks, identity=identity)
    except BaseException:
        stager.discard()
        raise
    if result.replayed:
        # The commit didn't take the chunks, so their files would stay until the service's clean-up.
        stager.discard()
        done.records, done.replayed = 0, True
    done.add(result.ends.get(topic, {}))
    return done


def _rows(
    files: Sequence[tuple[str, Source, BinaryIO]], form: str, lines: Lines | None
) -> Iterator[pa.RecordBatch]:
    for name, source, file in files:
        try:
            if form == "parquet":  # its reads are not sequential
                with _seekable(file) as (whole, keep):
                    while block := source.whole(_READ):
                        keep(block)
                    whole.seek(0)
                    yield from batches(whole, form)
            else:
                yield from batches(Readable(source) if form == "csv" else source, form, lines)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{name}: {error}") from None


@contextlib.contextmanager
def _seekable(file: BinaryIO) -> Iterator[tuple[BinaryIO, Callable[[bytes], Any]]]:
    """Yield a seekable file and a function that must be called after each block.

    A pipe is copied to a temporary file.
    """
    if file.seekable():
        yield file, lambda block: None
        return
    with tempfile.TemporaryFile() as whole:
        yield cast(BinaryIO, whole), whole.write


def _in_commits(log: Log, records: Records, framing: Framing) -> Produced:
    topic, rows, linger = records.topic, iter(records), records.linger
    done = Produced(topic=topic)
    log.topic(topic)  # raises for a missing topic, whatever the input
    largest = _Largest()
    while True:
        stager, size, count = log.stager(framing), 0, 0
        # Again for each commit: another process may have added partitions or changed configs.
        info = log.topic(topic)
        largest.size = 0
        with largest.named():
            try:
                for part in rows:
                    if part.num_rows:
                        largest.observe(part)
                        stager.add(info, part, partition=records.partition)
                        size, count = size + part.nbytes, count + part.num_rows
                    if size >= COMMIT_BYTES or (count and linger.is_over()):
                        break
            except Stopped:
                done.stopped = True
            chunks = stager.finish()
        linger.done()
        if count:
            done.add(log.commit(chunks).ends.get(topic, {}))
            done.records += count
        if done.stopped or not count:
            return done


class _Largest:
    """Finds the largest record of a commit, so that an error can name the record's number."""

    def __init__(self) -> None:
        self.size, self._number, self._seen = 0, 0, 0

    def observe(self, rows: pa.RecordBatch) -> None:
        """Inspect the next rows of the input."""
        sizes = np.zeros(rows.num_rows, np.int64)
        for name in {"key", "value"} & set(rows.schema.names):
            try:
                lengths = pc.binary_length(rows.column(name)).fill_null(0)
            except pa.ArrowNotImplementedError:
                continue  # the stager reports unsuitable columns, or converts them
            sizes += lengths.to_numpy(zero_copy_only=False)
        at = int(sizes.argmax())
        if sizes[at] > self.size:
            self.size, self._number = int(sizes[at]), self._seen + at + 1
        self._seen += rows.num_rows

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Add the record's number to an error about a record that is too large."""
        try:
            yield
        except RecordTooLargeError as error:
            raise RecordTooLargeError(
                f"record {self._number} of the input has {self.size} bytes ({error}); its commit "
                "was not written"
            ) from None
