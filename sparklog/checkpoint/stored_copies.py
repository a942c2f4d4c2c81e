"""Writes checkpoints in object stores, in runs: a copy of a checkpoint, or a change in place.

A copy becomes visible with its last object, HOME. A change is a new run with fewer or other files.
The first entry of the run is the commit point.
"""

import contextlib
import uuid
from collections.abc import Mapping
from typing import Any, Final

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint, batch_numbers
from sparklog.checkpoint.log_backed.layout import RESET, RUNS_SCHEME
from sparklog.checkpoint.log_backed.metadata_marker import (
    MARKER_OF_RUNS,
    MARKER_START,
    METADATA_FILE,
)
from sparklog.checkpoint.run_writer import RunWriter
from sparklog.checkpoint.stored_files import StoredFiles
from sparklog.checkpoint.stored_runs import HOME, RunFiles
from sparklog.checkpoint.truncation import Truncation
from sparklog.checkpoint.unfinished_reset import UnfinishedReset, reset_sink
from sparklog.clock import Clock
from sparklog.errors import DataCorruptionError, InvalidRequestError, LogLockedError
from sparklog.fs import FileSystem
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

RESETTING: Final = "reset"
OBJECTS: Final = "sparklog/"
"""What the names of all objects begin with, except for the marker's."""
HADOOP_SCHEMES: Final = {"s3": "s3a", "s3n": "s3a", "gcs": "gs", "az": "abfss"}


def spark_url(url: str) -> str:
    """Return the URL by which Spark finds the files of a checkpoint in runs at a URL of fsspec.

    Raises:
        InvalidRequestError: Spark names the place in another way.
    """
    scheme, _, rest = url.partition("://")
    is_short = scheme in ("abfs", "abfss", "az") and "@" not in rest
    if scheme == "webhdfs" or is_short or (rest.startswith("/") and scheme != "file"):
        raise InvalidRequestError(
            f"{url}: Spark uses another URL of this place. Name the place as checkpointLocation "
            "will, such as hdfs://HOST:PORT/PATH or "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
            path=url,
        )
    return f"{RUNS_SCHEME}{HADOOP_SCHEMES.get(scheme, scheme)}://{rest}"


def open_new_store(url: str, storage_options: Mapping[str, Any] | None) -> Store:
    """Open the store for a new checkpoint.

    Raises:
        InvalidRequestError: The URL has objects already, except for objects of an interrupted copy.

    Cost:
        A LIST request per 1,000 objects.
    """
    store = open_store(url, storage_options)
    names = [listed.name for listed in store.list() if not listed.name.endswith("/")]
    others = [name for name in names if not name.startswith(OBJECTS) and name != METADATA_FILE]
    is_marker = METADATA_FILE not in names or store.get(METADATA_FILE).startswith(MARKER_START)
    if HOME in names or others or not is_marker:
        raise InvalidRequestError(
            f"{store.url} exists already: choose a new location", path=store.url
        )
    return store


class CopyInRuns:
    """A copy of a checkpoint in an object store, which `publish` makes visible.

    Args:
        store: The store of the copy.
        by: The operation that writes the copy.
        clock: The current time in milliseconds since the epoch.
    """

    def __init__(self, store: Store, by: str, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self.id = str(uuid.uuid4())
        self._writer = RunWriter(store, self.id, None, by, clock)

    def write(self, checkpoint: Checkpoint, truncation: Truncation) -> int:
        """Write the files of a checkpoint that remain after a truncation. Return their bytes.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses.

        Cost:
            Reads each file once. A PUT per 16 MiB, and three more.
        """
        size = _add_files(self._writer, checkpoint, truncation, self._clock)
        self._writer.publish()
        return size

    def check_complete(self, batch: int) -> None:
        """Read the copy.

        Raises:
            LogLockedError: The query has removed files that a batch needs.
            InvalidRequestError: Another copy has become visible at the same location meanwhile.
        """
        runs = RunFiles(self._store, self._writer.home())
        try:
            obstacle = Batches(Checkpoint(self._store.url, StoredFiles(runs))).obstacle(batch)
        except DataCorruptionError:
            self._writer.check_new()  # the other copy has deleted objects of this one
            raise
        if obstacle is not None:
            self._writer.check_new()
            raise LogLockedError(
                f"the query removed files that batch {batch} needs during the copy ({obstacle}): "
                "try again, or go back to a later batch"
            )

    def publish(self) -> None:
        """Make the copy visible at a new location, and delete what interrupted copies left.

        Raises:
            InvalidRequestError: Another checkpoint was created at the same location.
            StorageUnavailableError: The store does not answer, or refuses.
        """
        self._writer.create_marker()
        self.create_home()

    def create_home(self) -> None:
        """Do the same as `publish` where a checkpoint of Spark itself has a `metadata` file."""
        self._writer.create_home()
        own = f"{OBJECTS}{self.id}/"
        names = [listed.name for listed in self._store.list(OBJECTS)]
        left = [name for name in names if name != HOME and not name.startswith(own)]
        self._store.delete(left)


class ChangedRuns:
    """A change of a checkpoint in runs, as of now.

    Args:
        runs: The files, as of their last listing.
        by: The operation that changes the checkpoint.
        clock: The current time in milliseconds since the epoch.
    """

    def __init__(self, runs: RunFiles, by: str, clock: Clock) -> None:
        self._runs, self._clock = runs, clock
        self._writer = RunWriter(runs.store, runs.id, runs.end, by, clock)

    def check_converted(self) -> None:
        """Raise InvalidRequestError if an import or export of the checkpoint was interrupted."""
        store = self._runs.store
        if _is_converting(store):
            raise InvalidRequestError(
                f"{store.url}: an import or export of the checkpoint was interrupted: run it again "
                "first",
                path=store.url,
            )

    def seal(self) -> None:
        """End the newest run, so that its driver can't write any more.

        Raises the errors of `write`.
        """
        self._writer.seal()

    def write(
        self, checkpoint: Checkpoint, truncation: Truncation, added: Mapping[str, bytes]
    ) -> None:
        """Begin a run with the remaining files and the added files.

        Raises:
            LogLockedError: The query is running.
            StorageUnavailableError: The store does not answer, or refuses. The checkpoint is
                unchanged, or changed completely.

        Cost:
            Three PUT requests, whatever the size of the files.
        """
        gone = truncation.dropped | truncation.replaced.keys() | added.keys()
        for path in checkpoint.paths():
            if path not in gone:
                self._writer.refer(path, self._runs.locate(path))
        for path, data in {**truncation.replaced, **added}.items():
            self._writer.add(path, data, self._clock())
        self._writer.publish()

    def replace(self, checkpoint: Checkpoint, truncation: Truncation) -> None:
        """Begin a run with the files of another checkpoint that remain after a truncation.

        Raises the errors of `write`.

        Cost:
            Reads each file once. A PUT per 16 MiB, and three more.
        """
        _add_files(self._writer, checkpoint, truncation, self._clock)
        self._writer.publish()


def _add_files(
    writer: RunWriter, checkpoint: Checkpoint, truncation: Truncation, clock: Clock
) -> int:
    """Write the files that remain after a truncation. Return their bytes."""
    size = 0
    for path in checkpoint.paths():
        if path in truncation.dropped or path in truncation.replaced:
            continue
        # A missing file was removed since the listing; `check_complete` detects needed files.
        with contextlib.suppress(FileNotFoundError):
            data = checkpoint.read(path)
            writer.add(path, data, checkpoint.stat(path).mtime_ms)
            size += len(data)
    for path, data in truncation.replaced.items():
        writer.add(path, data, clock())
        size += len(data)
    return size


def complete_in_runs(
    checkpoint: Checkpoint,
    storage_options: Mapping[str, Any] | None,
    *,
    fs: FileSystem,
    clock: Clock,
) -> None:
    """Complete an import, export or reset of a checkpoint in runs that was interrupted.

    Raises the errors of `unfinished_reset.complete`, `LogLockedError` if the query is running, and
    `DataCorruptionError` if the checkpoint has two histories.

    Cost:
        A GET request if nothing was interrupted.
    """
    runs = runs_of(checkpoint)
    if runs is None:
        return
    _complete_conversion(checkpoint, runs.store)
    run = ChangedRuns(runs, RESETTING, clock)
    try:
        data = runs.get(RESET)
    except FileNotFoundError:
        return
    run.seal()  # or the query would write batches again that it has not committed yet
    path = f"{checkpoint.path}/{RESET}"
    unfinished = UnfinishedReset.parse(data, path)
    reset_sink(unfinished, path, storage_options=storage_options, fs=fs, clock=clock)
    # The request is no path of the checkpoint, so a run without changes leaves it out.
    run.write(checkpoint, Truncation(unfinished.batch, frozenset()), {})
    checkpoint.refresh()


def _complete_conversion(checkpoint: Checkpoint, store: Store) -> None:
    """Complete an import, or take back an export, that left Spark's own files beside the runs.

    A reset must not precede this: the remaining files would then have later batches than the runs,
    as if a session without sparklog's manager had written them.

    Raises:
        DataCorruptionError: A session without sparklog's manager has used the files.
    """
    if not _is_converting(store):
        return
    left = files_beside(store)
    _check_one_history(checkpoint, left)
    store.put(METADATA_FILE, MARKER_OF_RUNS)
    store.delete(left)


def _is_converting(store: Store) -> bool:
    try:
        return not store.get(METADATA_FILE).startswith(MARKER_START)
    except FileNotFoundError:
        return False


def files_beside(store: Store) -> list[str]:
    """Return the objects of a checkpoint that are not part of its runs, without `metadata`."""
    names = [listed.name for listed in store.list()]
    return [name for name in names if not name.startswith(OBJECTS) and name != METADATA_FILE]


def _check_one_history(checkpoint: Checkpoint, left: list[str]) -> None:
    """Check the files that an interrupted conversion left beside the runs.

    Raises:
        DataCorruptionError: A session without sparklog's manager has used the files.
    """
    for directory in ("offsets", "commits"):
        newest = max(batch_numbers(checkpoint.names(directory)), default=-1)
        beside = batch_numbers(name.removeprefix(f"{directory}/") for name in left)
        if beside and beside[-1] > newest:
            raise DataCorruptionError(
                "a session without sparklog's checkpoint manager wrote this file beside the "
                "checkpoint's runs, so the checkpoint has two histories. To continue the history "
                "of the runs, move the objects metadata, offsets and commits away; the rows that "
                "the other session wrote to its sink remain there",
                path=f"{checkpoint.path}/{directory}/{beside[-1]}",
            )


def runs_of(checkpoint: Checkpoint) -> RunFiles | None:
    """Return the ledger of a checkpoint in runs; None for any other checkpoint."""
    return checkpoint.fs.runs if isinstance(checkpoint.fs, StoredFiles) else None
