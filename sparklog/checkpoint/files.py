"""`Checkpoint`: all files of a checkpoint, whether stored as files or as records of its log dir.

A path exists if it has a live record or, without a record, a file. So a checkpoint that Spark's own
manager created can be continued without a conversion. A live record takes precedence.
"""

import bisect
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from sparklog.checkpoint.checkpoint_kind import CheckpointKind, StoredFileSystem
from sparklog.checkpoint.log_backed.layout import (
    LOGS,
    METADATA_PARTITION,
    RESET,
    RUNS,
    RUNS_HOME,
    address_of,
    path_of,
)
from sparklog.checkpoint.log_backed.lock import LOCK_NAME, restarted_since
from sparklog.checkpoint.log_backed.metadata_marker import METADATA_FILE, has_marker
from sparklog.checkpoint.log_backed.partition import (
    REPAIR,
    CheckpointPartition,
    NewestRecord,
    partition_dirs,
)
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL, FileSystem, read_bytes
from sparklog.logdir.ledger import ledger_path
from sparklog.logdir.paths import is_within, store_url
from sparklog.text_checks import path_text

_LOGGER: Final = logging.getLogger(__name__)
_OURS: Final = frozenset({RUNS, RESET})


@dataclass(frozen=True, slots=True)
class Stat:
    """The size in bytes and mtime (ms) of a path, and whether the path is stored as a record."""

    size: int
    mtime_ms: int
    is_record: bool


class Checkpoint:
    """The files of a checkpoint when it was opened or last refreshed.

    Paths are relative to the checkpoint, with "/". Takes no lock and makes no changes.

    Attributes:
        path: The directory, or the URL.
        fs: The file system of the checkpoint.
        disk: The file system of this machine.
        logs: The path of the log dir.
        partitions: The partitions of the log dir.
        damage: The damage of partitions, or of the ledger of a checkpoint in runs.
        has_marker: Whether there is the metadata marker.
    """

    def __init__(
        self,
        path: str,
        fs: FileSystem = LOCAL,
        *,
        listed: bool = True,
        disk: FileSystem | None = None,
    ) -> None:
        self.path, self.fs = path, fs
        self.disk = disk or fs
        self.logs = os.path.join(path, LOGS)
        self.partitions: dict[str, CheckpointPartition] = {}
        self.damage: dict[str, DataCorruptionError] = {}
        self.has_marker = False
        self._records: dict[str, tuple[CheckpointPartition, str, NewestRecord]] = {}
        self._files: set[str] = set()
        self._paths: list[str] = []
        if listed:
            self.refresh()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        fs: FileSystem = LOCAL,
        *,
        to_end: bool = True,
        needs_id: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> "Checkpoint":
        """Open the checkpoint at a local path or file: URL.

        Args:
            path: The checkpoint.
            fs: The file system of a local path.
            to_end: Whether a damaged last record of a partition is an error.
            needs_id: Whether a log that has lost the query's id counts as damaged.
            storage_options: If given, the path may be the URL of a store, with these options of
                fsspec.

        Raises:
            InvalidRequestError: There is no checkpoint, or a log-backed checkpoint in a store.
            DataCorruptionError: The checkpoint's log dir is damaged (file and position), or the
                checkpoint has two histories.

        Cost:
            Lists the checkpoint, and reads the checkpoint's log dir.
        """
        found = cls.inspect(path, fs, storage_options)
        ends = filter(None, map(found.damaged_end, found.partitions.values() if to_end else ()))
        for damage in (*found.damage.values(), *ends, *second_history(found)):
            raise damage
        if needs_id and (lost := found.lost_id()) is not None:
            raise lost
        return found

    @classmethod
    def inspect(
        cls,
        path: str | os.PathLike[str],
        fs: FileSystem = LOCAL,
        storage_options: Mapping[str, Any] | None = None,
    ) -> "Checkpoint":
        """Open a checkpoint without damaged partitions, which `damage` lists."""
        url, disk, own = None if storage_options is None else store_url(path), fs, ""
        if url is None:
            own = own_path(path)
            # A shared directory, where the manager keeps checkpoints in runs.
            if storage_options is not None and fs.exists(os.path.join(own, RUNS_HOME)):
                url = f"file://{own}"
        if url is not None:
            # The sink uses this module, and installs without the packages of stores.
            from sparklog.checkpoint.stored_files import open_files

            fs = stored = open_files(url, storage_options)
            own = stored.url
        if not _is_checkpoint(fs, own):
            raise InvalidRequestError(
                f"{own} is not the checkpoint of a streaming query: use the query's "
                "checkpointLocation",
                path=own,
            )
        if url is not None and stored.has_log_dir:
            raise InvalidRequestError(
                f"{own} contains the log of a checkpoint from a local disk, which is read on a "
                "disk only: copy all files below the URL to a directory, and use the directory",
                path=own,
            )
        return cls(own, fs, disk=disk)

    @classmethod
    def without_listing(cls, path: str, fs: FileSystem = LOCAL) -> "Checkpoint":
        """Return a checkpoint for `find`, which reads only the requested paths."""
        return cls(path, fs, listed=False)

    @property
    def is_log_backed(self) -> bool:
        """Whether there is a log dir."""
        return self.fs.is_dir(self.logs)

    @property
    def kind(self) -> CheckpointKind:
        """How the checkpoint is stored."""
        if isinstance(self.fs, StoredFileSystem) and self.fs.is_in_runs:
            return CheckpointKind.IN_RUNS
        return CheckpointKind.LOG_BACKED if self.is_log_backed else CheckpointKind.FILES

    def refresh(self) -> None:
        """Read the files and records that were written after the last refresh."""
        self.damage = {}
        for name in partition_dirs(self.fs, self.logs):
            try:
                if name in self.partitions:
                    self.partitions[name].refresh()
                else:
                    self.partitions[name] = CheckpointPartition(
                        self.fs, os.path.join(self.logs, name)
                    )
                # Called only for its error: a directory that is no partition of a checkpoint must
                # not be read.
                path_of(name, "")
            except DataCorruptionError as error:
                self.damage[name] = error
                self.partitions.pop(name, None)
            except InvalidRequestError as error:
                directory = os.path.join(self.logs, name)
                self.damage[name] = DataCorruptionError(str(error), path=directory)
                self.partitions.pop(name, None)
        # Read commits before state, so that the state of every known commit is found.
        self._files = set(walk_files(self.fs, self.path))
        if isinstance(self.fs, StoredFileSystem):
            self.damage.update({error.path or "": error for error in self.fs.ledger_damage})
        self.has_marker = METADATA_FILE in self._files and has_marker(self.fs, self.path)
        if self.has_marker:
            # The marker occupies the name of Spark's file `metadata`, but contains no query id.
            self._files.discard(METADATA_FILE)
            if not self.partitions and not self.damage:
                self.damage[METADATA_PARTITION] = _lost_log(self)
        self._records = {
            path_of(name, key): (partition, key, entry)
            for name, partition in self.partitions.items()
            for key, entry in partition.live()
        }
        seen = {path for path in self._files if not _is_hidden(path)} | self._records.keys()
        self._paths = sorted(seen - _OURS)

    def lost_id(self) -> DataCorruptionError | None:
        """Return an error if the log has lost the query id, which the query needs to start."""
        if not self.has_marker or self.exists(METADATA_FILE):
            return None
        return DataCorruptionError(
            f"the log-backed checkpoint {self.path} has lost the query id, without which the query "
            "can't be started; restore the checkpoint from a copy",
            path=os.path.join(self.logs, METADATA_PARTITION),
        )

    def damaged_end(self, partition: CheckpointPartition) -> DataCorruptionError | None:
        """Return the damage of a partition's last batch, which readers ignore, or None.

        A batch that is too short is a torn write. Wrong bytes are caused by a power cut if the
        host was restarted after the write; otherwise they are damage.
        """
        for segment in partition.segments[-1:]:
            if segment.is_torn and not segment.is_short and not restarted_since(self.fs, self.logs):
                return DataCorruptionError(
                    "the last batch is damaged, and no power cut explains the damage; with the "
                    f"query stopped, {REPAIR} keeps the valid records; or fork the "
                    "checkpoint to an earlier batch, or restore the checkpoint from a copy",
                    path=partition.path(segment),
                    position=segment.end,
                    first=segment.next_offset,
                )
        return None

    def paths(self, directory: str = "") -> list[str]:
        """Return the files below a directory, at any depth, sorted, without hidden files."""
        if not directory:
            return list(self._paths)
        first = bisect.bisect_left(self._paths, f"{directory}/")
        end = bisect.bisect_left(self._paths, f"{directory}0")  # "0" follows "/"
        return self._paths[first:end]

    def names(self, directory: str) -> list[str]:
        """Return the names of the files directly in a directory."""
        skip = len(directory) + 1
        return [path[skip:] for path in self.paths(directory) if "/" not in path[skip:]]

    def list_names(self, directory: str) -> list[str]:
        """List the files directly in a directory again, without a refresh of other paths.

        Cost: lists that directory, or reads its partition's new records.
        """
        name, _ = address_of(f"{directory}/0")
        real = self.real(directory)
        found = set(self.fs.listdir(real)) if self.fs.is_dir(real) else set()
        if name != METADATA_PARTITION and self.fs.is_dir(os.path.join(self.logs, name)):
            partition = self._partition(name)
            partition.refresh()
            found |= {key for key, _ in partition.live()}
        return sorted(n for n in found if not _is_hidden(n))

    def files(self) -> Set[str]:
        """Return the paths that are stored as files, also hidden files, without the log dir."""
        return self._files

    def exists(self, path: str) -> bool:
        """Return True if a path exists."""
        return path in self._records or path in self._files

    def is_record(self, path: str) -> bool:
        """Return True if a path is stored as a record."""
        return path in self._records

    def stat(self, path: str) -> Stat:
        """Return size and mtime of a path.

        Raises:
            FileNotFoundError: The path does not exist.
        """
        if path in self._records:
            _, _, entry = self._records[path]
            return Stat(entry.value_bytes, entry.timestamp, is_record=True)
        real = self.real(path)
        return Stat(self.fs.size(real), self.fs.mtime_ms(real), is_record=False)

    def read(self, path: str) -> bytes:
        """Return the content of a path.

        Raises:
            FileNotFoundError: The path does not exist.
            DataCorruptionError: The record is damaged.
        """
        if path in self._records:
            partition, key, _ = self._records[path]
            data = partition.read(key)
            if data is not None:
                return data
        return read_bytes(self.fs, self.real(path))

    def locate(self, path: str) -> tuple[str, int | None]:
        """Return where a path's bytes are stored: a file, and the record's position or None."""
        if path not in self._records:
            return self.real(path), None
        partition, _, entry = self._records[path]
        segment = next(s for s in partition.segments if s.base == entry.base)
        return partition.path(segment), entry.position

    def value_at(self, path: str) -> tuple[str, int]:
        """Return the file that contains a path's bytes, and the position of the first byte."""
        where, position = self.locate(path)
        if position is None:
            return where, 0
        entry = self._records[path][2]
        return where, position + entry.size - 1 - entry.value_bytes  # one byte follows: no headers

    def real(self, path: str) -> str:
        """Return the path that a file has outside of the log dir."""
        return os.path.join(self.path, path)

    def find(self, path: str) -> bool:
        """Look up a path again, without a listing. Return whether it exists."""
        name, key = address_of(path)
        partition = None
        if self.fs.is_dir(os.path.join(self.logs, name)):
            partition = self._partition(name)
        self._records.pop(path, None)
        self._files.discard(path)
        if partition is not None:
            partition.refresh()
            entry = partition.entries.get(key)
            if entry is not None and entry.value_bytes >= 0:
                self._records[path] = partition, key, entry
        is_mark = path == METADATA_FILE and has_marker(self.fs, self.path)
        if self.fs.exists(self.real(path)) and not is_mark:
            self._files.add(path)
        return self.exists(path)

    def _partition(self, name: str) -> CheckpointPartition:
        if name not in self.partitions:
            self.partitions[name] = CheckpointPartition(self.fs, os.path.join(self.logs, name))
        return self.partitions[name]


def batch_numbers(names: Iterable[str]) -> list[int]:
    """Return the batches among the names of a directory's files, ascending."""
    return sorted(int(name) for name in names if name.isdecimal())


def walk_files(fs: FileSystem, root: str, directory: str = "") -> Iterator[str]:
    """Yield the relative paths of all files below `root`, without the log dir."""
    for name in fs.listdir(os.path.join(root, directory) if directory else root):
        path = f"{directory}/{name}" if directory else name
        if path == LOGS:
            continue
        if fs.is_dir(os.path.join(root, path)):
            yield from walk_files(fs, root, path)
        else:
            yield path


def walk_directories(fs: FileSystem, root: str, directory: str = "") -> Iterator[str]:
    """Yield the relative paths of all directories below `root` but the log dir, parents first."""
    for name in fs.listdir(os.path.join(root, directory) if directory else root):
        path = f"{directory}/{name}" if directory else name
        if path != LOGS and fs.is_dir(os.path.join(root, path)):
            yield path
            yield from walk_directories(fs, root, path)


def local_path(url: str) -> str | None:
    """Return the local path of a Hadoop path, if it is on the local file system."""
    if match := re.match(r"file:(?://)?(?=/)", url):
        return os.path.abspath(url[match.end() :])
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) else os.path.abspath(url)


def own_path(path: str | os.PathLike[str]) -> str:
    """Return a local path or file: URL as an absolute path, with links resolved.

    Raises:
        InvalidRequestError: The path is on another file system.
    """
    text = path_text(path)
    local = local_path(text)
    if local is None or not text:
        raise InvalidRequestError(
            "the checkpoint must be on a local disk, or a URL such as s3://bucket/checkpoint; got "
            f"{text!r}"
        )
    return os.path.realpath(local)


def _is_checkpoint(fs: FileSystem, path: str) -> bool:
    """Return True if a directory has a query's id, its plans or its records.

    Other formats have directories `metadata`. A directory `sparklog` may be anything, also a log.
    """
    metadata, plans, logs = (os.path.join(path, n) for n in ("metadata", "offsets", LOGS))
    if (fs.exists(metadata) and not fs.is_dir(metadata)) or fs.is_dir(plans):
        return True
    is_log = fs.is_dir(ledger_path(logs)) and not fs.is_dir(os.path.join(logs, METADATA_PARTITION))
    return fs.exists(os.path.join(logs, LOCK_NAME)) and not is_log


def _is_hidden(path: str) -> bool:
    return path.rpartition("/")[2].startswith(".")


def second_history(checkpoint: Checkpoint) -> Iterator[DataCorruptionError]:
    """Yield, as damage, files that a session without sparklog's manager wrote beside the log.

    Plans and commits in files are legitimate in two cases. They are older than the plans and
    commits in the log, if the log continues an ordinary checkpoint. Or they equal records of the
    log, after an interrupted import.
    """
    if not checkpoint.partitions:
        return
    if checkpoint.is_record(METADATA_FILE) and METADATA_FILE in checkpoint.files():
        file = read_bytes(checkpoint.fs, checkpoint.real(METADATA_FILE))
        if is_damaged_marker(file):
            yield DataCorruptionError(
                "the file contains no query id: it is the damaged marker of a log-backed "
                f"checkpoint; {REPAIR} writes it again",
                path=checkpoint.real(METADATA_FILE),
            )
        elif _id_of(file) != _id_of(checkpoint.read(METADATA_FILE)):
            yield _beside_the_log(checkpoint, METADATA_FILE)
    for directory in ("offsets", "commits"):
        batches = {name for name in checkpoint.names(directory) if name.isdecimal()}
        kept = {name for name in batches if checkpoint.is_record(f"{directory}/{name}")}
        files = {name for name in batches if f"{directory}/{name}" in checkpoint.files()}
        own = min(map(int, kept - files), default=None)
        for name in sorted(files, key=int):
            path = f"{directory}/{name}"
            if name in kept:
                file = read_bytes(checkpoint.fs, checkpoint.real(path))
                is_other = checkpoint.read(path) != file
            else:
                is_other = own is not None and int(name) > own
            if is_other:
                yield _beside_the_log(checkpoint, path)


def is_damaged_marker(data: bytes) -> bool:
    """Return True if a `metadata` file has no query id. Spark's own file always has one."""
    return not isinstance(_id_of(data), str)


def _beside_the_log(checkpoint: Checkpoint, path: str) -> DataCorruptionError:
    return DataCorruptionError(
        "a session without sparklog's checkpoint manager wrote this file beside the checkpoint's "
        "log, so the checkpoint has two histories. To continue the log's history, move the files "
        "metadata, offsets and commits of the other session away; the rows that the other session "
        "wrote to its sink remain there",
        path=checkpoint.real(path),
    )


def _lost_log(checkpoint: Checkpoint) -> DataCorruptionError:
    path, logs = checkpoint.path, checkpoint.logs
    if checkpoint.fs is not checkpoint.disk:
        return DataCorruptionError(
            f"{path} is a checkpoint in runs, but its object sparklog/home is missing. Restore the "
            "object from a copy or from an older version of the bucket. If a fork or a restore to "
            "this place was interrupted, run it again",
            path=path,
        )
    return DataCorruptionError(
        f"{path} is a log-backed checkpoint, but its log dir {LOGS} is missing or empty. Restore "
        "the checkpoint from a copy, or start the query with a new checkpoint directory",
        path=logs,
    )


def _id_of(data: bytes) -> object:
    try:
        return json.loads(data)["id"]
    except (ValueError, KeyError, TypeError):
        return None


def check_not_nested(checkpoint: str, log: str | os.PathLike[str]) -> None:
    """Check the paths of a query's checkpoint and log, with links resolved.

    A checkpoint within a log dir is logged as a warning.

    Raises:
        InvalidRequestError: The log is in the checkpoint's directory. A reset would exchange the
            log together with the checkpoint, and an archive would contain it. A log at `sparklog`
            would use the same directory as the checkpoint's records.
    """
    if store_url(log) is not None:
        return
    root = os.path.realpath(checkpoint)
    for directory in map(str.strip, os.fspath(log).split(",")):
        local = local_path(directory)
        if local is None:
            continue
        home = os.path.realpath(local)
        if is_within(home, root):
            raise InvalidRequestError(
                f"the log dir {directory} is inside the query's checkpoint {checkpoint}, which "
                "resets replace and archives contain: use a directory outside of the checkpoint "
                "for the log (with the query stopped, the log can be moved with `mv`)",
                path=directory,
            )
        if is_within(root, home):
            _LOGGER.warning(
                "the checkpoint %s is inside the log dir %s: a Kafka broker would not start there, "
                "and deleting the log deletes the checkpoint; use separate directories", checkpoint,
                directory,
            )  # fmt: skip
