"""kafka-dump-log without Kafka: the same lines for the same files, on stdout and stderr.

Source: kafka.tools.DumpLogSegments (Kafka 4.1).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.names import INDEX, LOG, SNAPSHOT, TIMEINDEX, TXNINDEX
from sparklog.fs import LOCAL, File, FileSystem
from sparklog.tools.dump.index import (
    IndexFaults,
    IndexStyle,
    base_of,
    dump_index,
    dump_snapshot,
    dump_txn_index,
)
from sparklog.tools.dump.log import SIZE_MAX, LogDump, dump_batches
from sparklog.tools.dump.records import RecordLines, RecordStyle
from sparklog.tools.dump.text import STRING, check_decoder, scala_order
from sparklog.tools.dump.time_index import dump_time_index

T = TypeVar("T")
MAX_MESSAGE_SIZE: Final = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The options of kafka-dump-log, under the same names. Sizes are in bytes.

    Attributes:
        print_data_log: Print the contents of records. Implies `deep_iteration`.
        max_message_size: Limits the size of the batches that index entries point to.
        max_bytes: Limits the part of a log that is read.
    """

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_message_size: int = MAX_MESSAGE_SIZE
    max_bytes: int = SIZE_MAX
    key_decoder: str = STRING
    value_decoder: str = STRING
    remote_log_metadata_decoder: bool = False


class Output(NamedTuple):
    """Complete lines in UTF-8, for stdout or (`is_error`) for stderr."""

    text: bytes
    is_error: bool = False


@dataclass(slots=True)
class Dump:
    """A dump in progress. `damaged` is valid once all output was consumed.

    Damage is data that Kafka would not read: a wrong CRC, bytes that are not a batch, an index that
    does not match its log, an unreadable snapshot. Gaps between offsets are no damage, because
    compaction creates them.
    """

    files: Sequence[str]
    options: DumpOptions
    fs: FileSystem = LOCAL
    damaged: bool = False
    _faults: dict[str, IndexFaults] = field(default_factory=dict)
    _gaps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def lines(self) -> Iterator[Output]:
        """Yield the output of kafka-dump-log, many lines at a time.

        Raises:
            InvalidRequestError: A file is missing.
            DataCorruptionError: Kafka's tool ends with an exception here. All earlier output was
                yielded before.

        Cost:
            A pass over the files. Memory: a few MiB, or a batch and its lines if those are larger.
        """
        for path in self.files:
            yield from self.file_lines(path)
        yield from self.mismatches()

    def check(self) -> None:
        """Check that all files can be dumped, before any output.

        Kafka's tool prints "Dumping" for such a file, then ends with an exception.

        Raises:
            InvalidRequestError: A file cannot be dumped.
        """
        for path in self.files:
            self._check(path)
            self._suffix(path)
            if not self.fs.exists(_shown(path)):
                raise _missing(path)

    def file_lines(self, path: str) -> Iterator[Output]:
        """Yield the lines of a single file. Raises the same errors as `lines`."""
        self._check(path)
        path = _shown(path)
        yield Output(f"Dumping {path}\n".encode())
        try:
            yield from self._file(path)
        except FileNotFoundError as error:
            raise _missing(error.filename or path) from None

    def _check(self, path: str) -> None:
        if "://" in path:
            raise InvalidRequestError(
                f"{path} is a URL, and only local files can be dumped; `sparklog tier restore` "
                "restores segments to a disk"
            )
        if self.fs.is_dir(path):
            raise InvalidRequestError(f"{path} is a directory; {_KNOWN}")

    def _suffix(self, path: str) -> str:
        """Return a file's suffix.

        Raises:
            InvalidRequestError: The name is not the name of a segment's file.
        """
        name = os.path.basename(_shown(path))
        dot = name.rfind(".")
        if dot < 0:
            raise InvalidRequestError(f"{path}: the file name has no suffix; {_KNOWN}")
        suffix = name[dot:]
        if suffix == ".checkpoint":
            raise InvalidRequestError(
                f"{path} is a snapshot of KRaft's metadata: read it with kafka-dump-log"
            )
        if suffix in (LOG, INDEX, TIMEINDEX, TXNINDEX):
            base_of(_shown(path))
        return suffix

    def _file(self, path: str) -> Iterator[Output]:
        options, suffix = self.options, self._suffix(path)
        style = IndexStyle(
            sanity_only=options.index_sanity_check,
            verify_only=options.verify_index_only,
            max_message_size=options.max_message_size,
        )
        faults = self._faults.setdefault(os.path.abspath(path), IndexFaults())
        match suffix:
            case ".log":
                lines = self._log(path)
            case ".index":
                lines = dump_index(self.fs, path, style, faults)
            case ".timeindex":
                lines = dump_time_index(self.fs, path, style, faults)
            case ".txnindex":
                lines = dump_txn_index(self.fs, path)
            case ".snapshot":
                yield from self._snapshot(path)
                return
            case _:
                yield Output(f"Ignoring unknown file {path}\n".encode(), is_error=True)
                return
        for text in lines:
            yield Output(text)

    def _log(self, path: str) -> Iterator[bytes]:
        options = self.options
        yield f"Log starting offset: {base_of(path)}\n".encode()
        lines = None
        if options.deep_iteration or options.print_data_log:
            style = RecordStyle(
                metadata=not options.skip_record_metadata,
                contents=options.print_data_log,
                key_decoder=check_decoder(options.key_decoder),
                value_decoder=check_decoder(options.value_decoder),
                remote_metadata=options.remote_log_metadata_decoder,
            )
            lines = RecordLines(style, path)
        most = options.max_bytes
        yield from self.in_log(
            path, lambda file, found: dump_batches(file, max_bytes=most, lines=lines, found=found)
        )

    def in_log(self, path: str, take: Callable[[File, LogDump], Iterator[T]]) -> Iterator[T]:
        """Call `take` for a log, yield the results, and record the log's gaps and damage."""
        self._check(path)
        found = LogDump()
        with self.fs.open(path) as file:
            yield from take(file, found)
        self.damaged |= found.damaged
        if found.gaps:
            self._gaps.setdefault(os.path.abspath(path), []).extend(found.gaps)

    def _snapshot(self, path: str) -> Iterator[Output]:
        try:
            for text in dump_snapshot(self.fs, path):
                yield Output(text)
        except DataCorruptionError as error:
            self.damaged = True
            yield Output(f"{error.reason}\n".encode(), is_error=True)

    def mismatches(self) -> Iterator[Output]:
        """Yield the mismatches that Kafka's tool prints on stderr at the end."""
        said: list[str] = []
        faults = self._faults
        for path in scala_order(p for p in faults if faults[p].offsets):
            said.append(f"Mismatches in :{path}")
            for indexed, there in reversed(faults[path].offsets):
                said.append(f"  Index offset: {indexed}, log offset: {there}")
        for path in scala_order(p for p in faults if faults[p].times):
            said.append(f"Found timestamp mismatch in :{path}")
            for indexed, there in faults[path].times:
                said.append(f"  Index timestamp: {indexed}, log timestamp: {there}")
        for path in scala_order(p for p in faults if faults[p].order):
            said.append(f"Found out of order timestamp in :{path}")
            for indexed, before in faults[path].order:
                said.append(f"  Index timestamp: {indexed}, Previously indexed timestamp: {before}")
        for path in scala_order(p for p in faults if faults[p].missing):
            said.append("The following indexed offsets are not found in the log.")
            for indexed, there in faults[path].missing:
                said.append(f"Indexed offset: {indexed}, found log offset: {there}")
        self.damaged |= bool(said)
        for path in scala_order(self._gaps):
            said.append(f"Non-consecutive offsets in {path}")
            for first, second in reversed(self._gaps[path]):
                said.append(f"  {first} is followed by {second}")
        if said:
            yield Output("".join(f"{line}\n" for line in said).encode(), is_error=True)


_SUFFIXES: Final = (LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT)
_KNOWN: Final = f"the files of a partition end with {', '.join(_SUFFIXES)}"


def _missing(path: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{path} does not exist: pass files of a segment; an index needs its .log in the "
        "same directory"
    )


def _shown(path: str) -> str:
    """Return the path as java.io.File prints paths: single slashes, and no slash at the end."""
    parts = [part for part in path.split("/") if part]
    return ("/" if path.startswith("/") else "") + "/".join(parts)
