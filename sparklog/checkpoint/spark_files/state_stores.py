"""State stores, from the files in `state/<operator>/<partition>[/<store>]/`.

    <version>.delta, <version>.snapshot                  HDFS provider
    <version>[_<id>].changelog, <version>[_<id>].zip     RocksDB provider; the id in format 2

Batch N creates version N + 1. A version can be loaded from a snapshot at or before it and every
change file since; version 0 is the empty store. In format 2 a batch's commit has the id of its
version, and each changelog has the ids of the versions before it back to a snapshot. Source:
HDFSBackedStateStoreProvider, RocksDB, RocksDBFileManager (Spark 4.2).
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from sparklog.checkpoint.files import Checkpoint, batch_numbers
from sparklog.checkpoint.spark_files.state_changelog import read_lineage
from sparklog.checkpoint.spark_files.state_files import ImmutableFile, plain, read_zip
from sparklog.errors import DataCorruptionError

_Parsed = TypeVar("_Parsed")
_NAME: Final = re.compile(r"([0-9]+)(?:_([^.]+))?\.(delta|snapshot|changelog|zip)")
_DIRECTORY: Final = re.compile(r"state/([0-9]+)/([0-9]+)(?:/([a-zA-Z0-9][a-zA-Z0-9._-]*))?")
_OPERATOR: Final = re.compile(r"state/([0-9]+)/.*")
_SHARED: Final = re.compile(r"state/[0-9]+/[0-9]+/(?:[^/]+/)?(?:SSTs|logs)/[^/]+")
_SNAPSHOTS: Final = ("snapshot", "zip")
DEFAULT_STORE: Final = "default"


class StateVersion(NamedTuple):
    """A version of a store: its number, and in format 2 its id, which identifies a branch."""

    number: int
    id: str | None


class StateFileName(NamedTuple):
    """The parts of a state file's name."""

    version: int
    id: str | None
    kind: str


class StateStoreMetadata(NamedTuple):
    """A store of an operator, according to the operator's metadata.

    Attributes:
        prefix_columns: The number of key columns that form the prefix.
        schemas: The paths of the schema files. The paths begin with the checkpoint's path at the
            time of writing. Empty before schema v3.
    """

    name: str
    partitions: int
    prefix_columns: int
    schemas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files from which a version is loaded, or why the version can't be loaded."""

    files: list[str]
    missing: str | None = None


@dataclass(slots=True)
class StateStore:
    """A store in a partition of an operator: the state files."""

    operator: int
    partition: int
    name: str
    directory: str
    snapshots: dict[StateVersion, str] = field(default_factory=dict)  # file names
    changes: dict[StateVersion, str] = field(default_factory=dict)
    _needed: dict[str, list[ImmutableFile]] = field(default_factory=dict)
    _lineages: dict[str, list[StateVersion]] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """The state store provider: "hdfs" or "rocksdb"."""
        names = [*self.snapshots.values(), *self.changes.values()]
        return "hdfs" if any(n.endswith((".delta", ".snapshot")) for n in names) else "rocksdb"

    def path(self, name: str) -> str:
        """Return the relative path of a file of this store."""
        return f"{self.directory}/{name}"

    def files_of(
        self, checkpoint: Checkpoint, version: int, ids: Collection[str] | None
    ) -> VersionFiles:
        """Return the files from which `version` is loaded.

        Args:
            checkpoint: The checkpoint.
            version: The version.
            ids: The ids in the commit for this partition.

        Cost:
            Reads a RocksDB snapshot's zip, and in format 2 a changelog, once each.
        """
        if version == 0:
            return VersionFiles([])
        if ids is None:
            return self._from_snapshot(
                checkpoint, (StateVersion(v, None) for v in range(version, 0, -1))
            )
        try:
            before = self._lineage(checkpoint, version, ids)
        except DataCorruptionError as error:
            return VersionFiles([], str(error))
        if not before:
            return VersionFiles(
                [], f"no state file of version {version} has an id that the commit names"
            )
        return self._from_snapshot(checkpoint, reversed(before))

    def _from_snapshot(
        self, checkpoint: Checkpoint, versions: Iterator[StateVersion]
    ) -> VersionFiles:
        """Try the newest snapshot first.

        Without a snapshot all changes since version 1 are needed.
        """
        reason: str | None = None
        needed: list[str] = []
        at = StateVersion(1, None)
        for at in versions:
            if at in self.snapshots:
                files = self._snapshot_files(checkpoint, self.snapshots[at])
                if files.missing is None:
                    return VersionFiles(files.files + needed[::-1])
                reason = reason or files.missing
            if at not in self.changes:
                return VersionFiles(
                    [], reason or f"version {at.number} is missing: {self._lost(at)}"
                )
            needed.append(self.path(self.changes[at]))
        if at.number == 1:
            return VersionFiles(needed[::-1])
        return VersionFiles([], reason or f"the snapshot before version {at.number} is missing")

    def _lost(self, version: StateVersion) -> str:
        stem = str(version.number) if version.id is None else f"{version.number}_{version.id}"
        kinds = "delta" if self.provider == "hdfs" else "changelog or zip"
        return f"there is no {self.path(stem)}.{kinds}"

    def _snapshot_files(self, checkpoint: Checkpoint, name: str) -> VersionFiles:
        path = self.path(name)
        if not name.endswith(".zip"):
            return VersionFiles([path])
        files = [path]
        try:
            for needed in self.immutables(checkpoint, name):
                shared = self.path(needed.path)
                if not checkpoint.exists(shared):
                    return VersionFiles([], f"{path} needs {shared}, which is missing")
                size = checkpoint.stat(shared).size
                if size != needed.size_bytes:
                    return VersionFiles(
                        [], f"{shared} has {size} bytes, but {path} says {needed.size_bytes}"
                    )
                files.append(shared)
        except (DataCorruptionError, FileNotFoundError) as error:
            return VersionFiles([], str(error))
        return VersionFiles(files)

    def immutables(self, checkpoint: Checkpoint, name: str) -> list[ImmutableFile]:
        """Return the SST and log files that a snapshot's zip names.

        Raises:
            DataCorruptionError: The zip is damaged.
        """
        if name not in self._needed:
            path = self.path(name)
            where = checkpoint.locate(path)[0]
            self._needed[name] = read_zip(checkpoint.read(path), where)
        return self._needed[name]

    def _lineage(
        self, checkpoint: Checkpoint, version: int, ids: Collection[str]
    ) -> list[StateVersion]:
        """Return the known versions on the branch of `version`, up to `version`, oldest first."""
        branches = (StateVersion(version, i) for i in ids)
        at = next((v for v in branches if v in self.snapshots or v in self.changes), None)
        if at is None or at in self.snapshots:
            return [] if at is None else [at]
        name = self.changes[at]
        if name not in self._lineages:
            path = self.path(name)
            where = checkpoint.locate(path)[0]
            data = plain(checkpoint.read(path), where)
            self._lineages[name] = sorted(StateVersion(*each) for each in read_lineage(data, where))
        return [*self._lineages[name], at]


def parse_name(name: str) -> StateFileName | None:
    """Parse a state file's name; return None for other files (checksums, schemas)."""
    match = _NAME.fullmatch(name)
    return None if match is None else StateFileName(int(match[1]), match[2], match[3])


def stores_of(checkpoint: Checkpoint) -> list[StateStore]:
    """Return all stores with state files, by operator, partition and name."""
    found: dict[str, StateStore] = {}
    for path in checkpoint.paths("state"):
        directory, _, file = path.rpartition("/")
        match, name = _DIRECTORY.fullmatch(directory), parse_name(file)
        if match is None or name is None:
            continue
        store = found.setdefault(
            directory,
            StateStore(int(match[1]), int(match[2]), match[3] or DEFAULT_STORE, directory),
        )
        files = store.snapshots if name.kind in _SNAPSHOTS else store.changes
        files[StateVersion(name.version, name.id)] = file
    return sorted(found.values(), key=lambda s: (s.operator, s.partition, s.name))


def unreferenced_files(
    checkpoint: Checkpoint, stores: Iterable[StateStore], *, without: Collection[str] = ()
) -> set[str]:
    """Return RocksDB's SST and log files that no snapshot, other than `without`, references.

    Raises:
        DataCorruptionError: A snapshot's zip can't be read.
    """
    needed: set[str] = set()
    for store in stores:
        for name in store.snapshots.values():
            if name.endswith(".zip") and store.path(name) not in without:
                found = store.immutables(checkpoint, name)
                needed.update(store.path(immutable.path) for immutable in found)
    return {path for path in checkpoint.paths("state") if _SHARED.fullmatch(path)} - needed


def operators_of(checkpoint: Checkpoint) -> list[int]:
    """Return the ids of the stateful operators."""
    matches = map(_OPERATOR.fullmatch, checkpoint.paths("state"))
    return sorted({int(match[1]) for match in matches if match is not None})


def stores_info(
    checkpoint: Checkpoint, operator: int, batch: int | None = None
) -> list[StateStoreMetadata]:
    """Return the stores in an operator's metadata, at a batch or (None) now. The list may be empty.

    Raises:
        DataCorruptionError: The metadata can't be read.
    """
    path = metadata_path(checkpoint, operator, batch)
    return [] if path is None else read_metadata(checkpoint, path)


def metadata_path(checkpoint: Checkpoint, operator: int, batch: int | None) -> str | None:
    """Return the path of an operator's metadata at a batch or (None) now, or None."""
    directory = f"state/{operator}/_metadata"
    batches = batch_numbers(checkpoint.names(f"{directory}/v2"))
    if batches:
        at = max((b for b in batches if batch is not None and b <= batch), default=batches[0])
        return f"{directory}/v2/{batches[-1] if batch is None else at}"
    path = f"{directory}/metadata"
    return path if checkpoint.exists(path) else None


def read_metadata(checkpoint: Checkpoint, path: str) -> list[StateStoreMetadata]:
    """Read the stores in an operator's metadata. Source: OperatorStateMetadata.

    Raises:
        FileNotFoundError: The operator has no metadata.
        DataCorruptionError: The metadata can't be read.
    """
    return parse_metadata(
        checkpoint,
        path,
        lambda document: [
            StateStoreMetadata(
                str(store["storeName"]),
                int(store["numPartitions"]),
                int(store.get("numColsPrefixKey", 0)),
                tuple(map(str, store.get("stateSchemaFilePaths", ()))),
            )
            for store in document["stateStoreInfo"]
        ],
    )


def parse_metadata(
    checkpoint: Checkpoint, path: str, parse: Callable[[dict[str, Any]], _Parsed]
) -> _Parsed:
    """Read an operator's metadata, and return the result of `parse` for their JSON object.

    Raises:
        FileNotFoundError: The operator has no metadata.
        DataCorruptionError: The metadata can't be read.
    """
    where = checkpoint.locate(path)[0]
    try:
        return parse(json.loads(checkpoint.read(path).decode().partition("\n")[2]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorruptionError(
            f"the operator's metadata can't be read: {error}", path=where
        ) from error
