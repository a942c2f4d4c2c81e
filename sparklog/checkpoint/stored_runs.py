"""The files of a checkpoint that sparklog's manager keeps in runs, in an object store.

`RunFiles` reads the ledger of the checkpoint as the manager does (RunLedger.scala), and presents
the files as objects of a store. Section "In runs" of log_backed/PROTOCOL.md describes the objects.
"""

import bisect
import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from sparklog.checkpoint.log_backed.layout import RUNS_HOME
from sparklog.errors import DataCorruptionError, InvalidRequestError, SparklogError
from sparklog.format.decoder import Decoder
from sparklog.format.scan import scan
from sparklog.tiered.object_store.store import Store, StoredObject

HOME: Final = RUNS_HOME
FORMAT: Final = 1
_ENTRY: Final = re.compile(r"run-(\d{10})/(\d{10})")
HEADER, CONTENT, REFERENCE = range(3)  # kinds of records: their base sequence
ENTRY_KEY: Final = "sparklog.entry"
INDEX_KEY: Final = "sparklog.index"
HOME_KEY: Final = "sparklog.home"
_TRIES: Final = 10
_FETCHES: Final = 16
_MEMORY_BYTES: Final = 64 << 20
# An index holds up to 64 MiB of contents, and a reference for each of the other files.
_OBJECT_BYTES_MAX: Final = 1 << 30
_RESTORE: Final = "restore the object from a copy or from an older version of the bucket"


Damage = list[DataCorruptionError]


class _MissingObject(DataCorruptionError):
    """An object that a driver may have deleted, after it had begun another run."""


@dataclass(frozen=True, slots=True)
class _Record:
    kind: int
    path: str
    value: bytes | None
    timestamp: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class FileLocation:
    """The location of a file's record batch, and the size and timestamp (ms) of the file."""

    object: str
    position: int
    batch_bytes: int
    length: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of the newest run: its seal, or the number that the next entry would have."""

    run: int
    number: int
    is_sealed: bool


class RunFiles:
    """The files of a checkpoint in runs, as of the last `list`. Read-only; not thread-safe.

    Attributes:
        store: The store of the objects.
        id: The random id of the checkpoint.
        end: The end of the newest run; None before the first run.
        damage: The damage of the ledger: of objects whose remaining files were not read.
    """

    def __init__(self, store: Store, home: bytes, *, is_lenient: bool = False) -> None:
        """Read nothing yet; `home` is the content of the object HOME.

        If `is_lenient`, damage of the ledger is collected instead of raised.

        Raises:
            InvalidRequestError: A later version of sparklog wrote the checkpoint.
            DataCorruptionError: The object is damaged.
        """
        self.url = store.url
        self.store = store
        self.end: RunEnd | None = None
        self.damage: Damage = []
        self.is_lenient = is_lenient
        record, *more = self._records(HOME, home)
        header = self._header(HOME, record, HOME_KEY)
        if more:
            raise self._swapped(HOME, f"the record {more[0].path}")
        if header.get("format") != FORMAT:
            raise InvalidRequestError(
                f"the checkpoint has the format {header.get('format')}, and this version of "
                f"sparklog reads the format {FORMAT}: use a later version of sparklog",
                path=store.url,
            )
        self.id = str(header.get("id"))
        self._directory = f"sparklog/{self.id}"
        self._files: dict[str, FileLocation] = {}
        self._memory: dict[FileLocation, bytes] = {}
        self._memory_bytes = 0
        self._lost = set[str]()  # objects that the ledger names and the store does not have

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of a file. Cost: a GET request, or none.

        Raises:
            FileNotFoundError: The file does not exist, or was removed since the listing.
            DataCorruptionError: The file is damaged, or the object with its content is missing.
        """
        file = self._files.get(name)
        if file is None:
            raise FileNotFoundError(2, "there is no such file", name)
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                return self._content(name, file)[start:end]
            if file.object in self._lost:
                break
            self.list()  # the driver moves files when it ends a run
            moved = self._files.get(name)
            if moved is None:
                raise FileNotFoundError(2, "the file was removed", name)
            if moved == file:
                self._lost.add(file.object)
            file = moved
        raise self._missing(file.object)

    def locate(self, name: str) -> FileLocation:
        """Return where a listed file is stored.

        Raises:
            FileNotFoundError: The file was removed since the listing.
        """
        if name not in self._files:
            raise FileNotFoundError(2, "the file was removed", name)
        return self._files[name]

    def get_many(self, names: Sequence[str], *, limit: int) -> list[bytes | Exception]:
        """Return complete files, fetched concurrently, or an error for each that can't be read."""
        files = [(name, self._files[name]) for name in names if name in self._files]
        wanted = [each for each in files if each[1] not in self._memory]
        with ThreadPoolExecutor(_FETCHES, "sparklog-checkpoint") as pool:
            for (_, file), data in zip(wanted, pool.map(self._fetched_file, wanted), strict=True):
                if data is not None:
                    self._remember(file, data)
        answers: list[bytes | Exception] = []
        for name in names:
            try:
                answers.append(self.get(name))
            except (OSError, SparklogError) as error:
                answers.append(error)
        return answers

    def _fetched_file(self, wanted: tuple[str, FileLocation]) -> bytes | None:
        """Return the content of a file; None if `get` has to report an error."""
        name, file = wanted
        try:
            data = self.store.get(file.object, file.position, file.position + file.batch_bytes)
            return self._parsed(name, file, data)
        except (OSError, SparklogError):
            return None

    def list(self) -> list[StoredObject]:
        """Read the ledger again, and return the files of the checkpoint.

        Cost:
            A LIST request per 1,000 objects, and a GET request for the index and for each entry of
            the newest run.

        Raises:
            DataCorruptionError: An object is damaged, missing or in the place of another one,
                unless the reader is lenient.
        """
        for attempt in range(_TRIES):
            if self._read_ledger(is_last=attempt == _TRIES - 1):
                break
        if self.damage and not self.is_lenient:
            raise self.damage[0]
        return [
            StoredObject(path, file.length, file.timestamp)
            for path, file in sorted(self._files.items())
        ]

    def _content(self, name: str, file: FileLocation) -> bytes:
        if file not in self._memory:
            data = self.store.get(file.object, file.position, file.position + file.batch_bytes)
            self._remember(file, self._parsed(name, file, data))
        return self._memory[file]

    def _parsed(self, name: str, file: FileLocation, data: bytes) -> bytes:
        record, *more = self._records(file.object, data, file.position)
        if more or record.path != name or record.kind != CONTENT:
            raise self._swapped(file.object, f"the record {record.path}")
        return record.value or b""

    def _remember(self, file: FileLocation, content: bytes) -> None:
        if file in self._memory:
            return
        self._memory[file] = content
        self._memory_bytes += len(content)
        while self._memory_bytes > _MEMORY_BYTES and len(self._memory) > 1:
            eldest = next(iter(self._memory))
            self._memory_bytes -= len(self._memory.pop(eldest))

    # -- the ledger --------------------------------------------------------------------------------

    def _read_ledger(self, *, is_last: bool) -> bool:
        """Read the newest run. Return False if a driver deleted objects of the run meanwhile."""
        listed = self.store.list(f"{self._directory}/run-")
        places = sorted(filter(None, map(self._place, listed)))
        if not places:
            self._files, self.end = {}, None
            return True
        # A run whose first entry is missing is damaged: the run before it has an older content.
        newest, is_sealed, number = places[-1][0], False, 0
        numbers = [n for run, n in places[bisect.bisect_left(places, (newest, 0)) :]]
        names = [entry_name(self._directory, newest, n) for n in range(numbers[-1] + 1)]
        files: dict[str, FileLocation] = {}
        damage: Damage = []
        for number, data in enumerate(self._fetched(names)):
            try:
                is_sealed = self._fold_entry(newest, number, data, files, damage) == "seal"
            except DataCorruptionError as error:
                damage.append(error)
            if is_sealed:
                break
        if not is_last and any(isinstance(each, _MissingObject) for each in damage):
            return False
        self._files, self.damage = files, damage
        self.end = RunEnd(newest, number if is_sealed else number + 1, is_sealed)
        return True

    def _fetched(self, names: Sequence[str]) -> Iterator[bytes | None]:
        """Yield the bytes of objects; None for a missing object."""
        for first in range(0, len(names), 64):
            some = names[first : first + 64]
            for data in self.store.get_many(some, limit=_OBJECT_BYTES_MAX):
                if isinstance(data, Exception) and not isinstance(data, FileNotFoundError):
                    raise data
                yield None if isinstance(data, Exception) else data

    def _fold_entry(
        self, run: int, number: int, data: bytes | None, files: dict[str, FileLocation],
        damage: Damage,
    ) -> str:  # fmt: skip
        """Apply an entry to `files`, and return its kind. Damage of the index goes to `damage`."""
        name = entry_name(self._directory, run, number)
        records = self._records(name, self._present(name, data))
        header = self._header(name, next(records), ENTRY_KEY)
        if (header.get("run"), header.get("number")) != (run, number):
            found = f"entry {header.get('number')} of run {header.get('run')}"
            raise self._swapped(name, found)
        if number == 0 and "index" in header:
            try:
                self._fold_index(str(header["index"]), files)
            except DataCorruptionError as error:
                damage.append(error)
        self._fold(name, header, records, files)
        return str(header.get("kind"))

    def _present(self, name: str, data: bytes | None) -> bytes:
        if data is None:
            raise self._missing(name)
        return data

    def _fold_index(self, name: str, files: dict[str, FileLocation]) -> None:
        (data,) = self._fetched([name])
        records = self._records(name, self._present(name, data))
        header = self._header(name, next(records), INDEX_KEY)
        if header.get("index") != name:
            raise self._swapped(name, f"the object {header.get('index')}")
        self._fold(name, header, records, files)

    def _fold(
        self, name: str, header: Mapping[str, Any], records: Iterator[_Record],
        files: dict[str, FileLocation],
    ) -> None:  # fmt: skip
        count = 0
        for record in records:
            count += 1
            files.pop(record.path, None)
            if record.kind == REFERENCE and record.value is not None:
                files[record.path] = self._referred(name, record)
            elif record.value is not None:
                file = FileLocation(
                    name, record.position, record.size, len(record.value), record.timestamp
                )
                files[record.path] = file
                self._remember(file, record.value)
        if count != header.get("files"):
            raise self._damaged(name, 0)

    def _referred(self, name: str, record: _Record) -> FileLocation:
        try:
            fields = json.loads(record.value or b"")
            return FileLocation(
                str(fields["object"]), int(fields["position"]), int(fields["batchBytes"]),
                int(fields["length"]), record.timestamp,
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            raise self._damaged(name, record.position) from None

    def _header(self, name: str, record: _Record, key: str) -> dict[str, Any]:
        if record.path != key or record.kind != HEADER:
            raise self._swapped(name, f"the record {record.path}")
        try:
            header = json.loads(record.value or b"")
        except ValueError:
            raise self._damaged(name, record.position) from None
        return dict(header)

    def _records(self, name: str, data: bytes, position: int = 0) -> Iterator[_Record]:
        """Yield the records of an object, which has one record per batch."""
        path = f"{self.url}/{name}"
        found = scan(data, path=path, position=position)
        if not len(found):
            raise self._damaged(name, found.end)
        decoder = Decoder(["key", "value"])
        done = 0
        while done < len(found):
            count = decoder.add_many(data, found.table[done:], path=path, position=position)
            batch = decoder.finish()
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            if len(keys) != count:
                raise self._damaged(name, int(found.table["position"][done]))
            for row, key, value in zip(found.table[done : done + count], keys, values, strict=True):
                yield _Record(
                    int(row["base_sequence"]), (key or b"").decode(errors="replace"), value,
                    int(row["max_timestamp"]), int(row["position"]), int(row["size"]),
                )  # fmt: skip
            done += count
        if found.error is not None or found.end != position + len(data):
            raise self._damaged(name, found.end)  # after the records that can be read

    def _place(self, listed: StoredObject) -> tuple[int, int] | None:
        match = _ENTRY.fullmatch(listed.name.removeprefix(f"{self._directory}/"))
        return (int(match[1]), int(match[2])) if match else None

    def _missing(self, name: str) -> DataCorruptionError:
        return _MissingObject(
            f"an object of the checkpoint is missing; {_RESTORE}", path=f"{self.url}/{name}"
        )

    def _damaged(self, name: str, position: int) -> DataCorruptionError:
        return DataCorruptionError(
            f"the bytes are not a complete record batch; {_RESTORE}",
            path=f"{self.url}/{name}",
            position=position,
        )

    def _swapped(self, name: str, found: str) -> DataCorruptionError:
        return DataCorruptionError(
            f"the object contains {found}: objects of the checkpoint were swapped or copied; "
            f"{_RESTORE}",
            path=f"{self.url}/{name}",
        )


def entry_name(directory: str, run: int, number: int) -> str:
    """Return the name of an entry of the ledger in `directory`."""
    return f"{directory}/run-{run:010}/{number:010}"


def run_files(store: Store) -> RunFiles | None:
    """Return the files of the checkpoint at the store's URL if it is kept in runs.

    Cost:
        A GET request.
    """
    try:
        home = store.get(HOME)
    except FileNotFoundError:
        return None
    return RunFiles(store, home)
