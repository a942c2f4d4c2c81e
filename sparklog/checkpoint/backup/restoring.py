"""`restore`: restores a snapshot of a backup repository to directories, on any machine.

Files are fetched beside the final names and checked piece by piece. They are then forked from there
by hard links: under the final paths, which Spark writes into some files, and the log with a higher
leader epoch and its own topic ids. So a snapshot can be restored any number of times. A log in a
bucket is forked directly from the repository to its new place.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from threading import Lock
from typing import Any, Final

from sparklog.checkpoint.backup import snapshots
from sparklog.checkpoint.backup.archived_log import ArchivedLog
from sparklog.checkpoint.backup.archiving import temporary_path
from sparklog.checkpoint.backup.repository import Repository, as_keyring
from sparklog.checkpoint.backup.snapshots import (
    CHECKPOINT,
    LOG,
    Snapshot,
    SnapshotFile,
    SnapshotTree,
)
from sparklog.checkpoint.backup.upload import check_threads
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.file_sink_cut import finish_cut, plan_sink_cut
from sparklog.checkpoint.files import Checkpoint, local_path
from sparklog.checkpoint.fork import fork as fork_checkpoint
from sparklog.checkpoint.query_sink import Announce, SinkKind, choose_sink
from sparklog.checkpoint.stored_copies import open_new_store
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.diskless.import_objects import BucketTarget
from sparklog.diskless.log_creation import check_apart
from sparklog.diskless.log_creation import fork as fork_in_store
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.fork_points import ForkPointRequest
from sparklog.logdir.forking.fork import fork as fork_log
from sparklog.logdir.paths import split_path, store_url
from sparklog.logdir.staged_directory import StagedDirectories, arrived
from sparklog.opening import url_of
from sparklog.progress import Progress, shows_progress
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]
_RAW: Final = "raw"
_NEWEST: Final = ForkPointRequest(time_ms=2**62)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of a restore.

    Attributes:
        path: The new checkpoint.
        log: The new log, or None.
        point: The name of the snapshot.
        batch: The batch that the query continues after.
        files: The number of restored files.
        bytes: The size of the restored files.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> from sparklog.checkpoint import archive, restore
        >>> archived = archive("checkpoint", bucket)
        >>> restore(bucket, "restored").batch
        2
    """

    path: str
    log: str | None
    point: str
    batch: int | None
    files: int
    bytes: int
    took_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def list_points(url: str, *, storage_options: Mapping[str, Any] | None = None) -> list[Snapshot]:
    """List the snapshots of a repository, oldest first.

    Args:
        url: The repository.
        storage_options: Options of fsspec for the repository.

    Raises:
        StorageUnavailableError: The store fails.

    Examples:
        >>> from sparklog.checkpoint import archive, list_points
        >>> archived = archive("checkpoint", bucket)
        >>> [snapshot.batch for snapshot in list_points(bucket)]
        [2]
    """
    return snapshots.list_snapshots(open_store(url, storage_options))


@shows_progress("restoring")
def restore(
    url: str,
    path: Path,
    *,
    batch: int | None = None,
    point: str | None = None,
    log: Path | None = None,
    storage_options: Mapping[str, Any] | None = None,
    keyring: Keyring | str | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    log_storage_options: Mapping[str, Any] | None = None,
    output: Path | None = None,
    sink: str | None = None,
    announce: Announce | None = None,
    threads: int = 4,
    progress: Progress | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Restored:
    """Restore a checkpoint, and the log that its query writes, from a snapshot.

    Neither may exist yet. They appear when they are complete and checked, the checkpoint last.
    The next restore removes a log dir that an interrupted restore left, and completes a log in a
    bucket.

    Args:
        url: The repository.
        path: The new checkpoint: a local path, or a URL. In a bucket the checkpoint is kept in
            runs, and its query needs sparklog's checkpoint manager.
        batch: The batch to restore, from its newest snapshot; by default the newest batch.
        point: The name of the snapshot to restore, instead of a batch.
        log: Where the log is restored: a directory, or the URL of an empty place in a bucket,
            depending on the archived log. Without it only the checkpoint is restored.
        storage_options: Options of fsspec for the repository.
        keyring: The keyring of an encrypted snapshot, or the path of its file.
        checkpoint_storage_options: Options of fsspec for a checkpoint in a bucket, if they differ
            from `storage_options`.
        log_storage_options: Options of fsspec for a log in a bucket, if they differ from
            `storage_options`.
        output: The directory of Spark's file sink; its `_spark_metadata` is cut to the batch.
        sink: As for `sparklog.checkpoint.reset`.
        announce: As for `sparklog.checkpoint.reset`.
        threads: The number of files that are read at the same time.
        progress: Called with the number of bytes done, and the total.
        fs: The file system of the checkpoint; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: There is no such snapshot, it has no log, or a path exists.
        DataCorruptionError: An object is missing or damaged.
        StorageUnavailableError: The disk or the store fails.
        LogLockedError: Another process restores to the same place.

    Examples:
        >>> from sparklog.checkpoint import archive, restore
        >>> archived = archive("checkpoint", bucket, log="log")
        >>> restored = restore(bucket, "restored", log="restored-log")
        >>> with sparklog.open("restored-log") as restored_log:
        ...     restored_log.read("flights").read_all().num_rows
        600
    """
    watch = stopwatch()
    own_options = checkpoint_storage_options or storage_options
    target, log_url, logs = _places(path, log, fs)
    checkpoint_url = store_url(target)
    check_threads(threads)
    store = open_store(url, storage_options)
    wanted = snapshots.choose(store, batch, point)
    repository, trees = snapshots.read(store, wanted, as_keyring(keyring))
    parts = [CHECKPOINT] if log is None else [CHECKPOINT, LOG]
    if log is not None:
        _check_log(store.url, wanted, trees.get(LOG), log, is_url=log_url is not None)
    if checkpoint_url is not None:
        _check_new_store(checkpoint_url, wanted, own_options)
    beside = target if checkpoint_url is None else temporary_path(checkpoint_url)
    with StagedDirectories(fs, [beside, *logs], "restore") as staged:
        total = sum(trees[part].size for part in parts)
        fetcher = _Fetcher(fs, repository, total, threads, progress)
        local = dict(zip(parts, [beside, *logs], strict=False))
        roots = {part: staged.beside(number, _RAW) for number, part in enumerate(local)}
        _fetch_all(fs, fetcher, trees, local, roots)
        follow = partial(_cut_sink, log, output, sink, announce)
        finish = partial(
            _finish, fs, clock, wanted, roots[CHECKPOINT], target, follow, own_options
        )
        if log_url is not None:
            to = open_store(log_url, log_storage_options or storage_options)
            archived = ArchivedLog(repository, wanted, trees[LOG], threads, fetcher.add)
            _restore_log(archived, store, to, finish, threads, clock)
        else:
            if logs:
                waits, raw = staged.waiting(1), roots[LOG]
                fork_log(raw, logs[0], _NEWEST, waits_for=waits, fs=fs, clock=clock)
            finish()
            arrived(fs, logs)
    return Restored(
        path=target,
        log=log_url or (logs[0] if logs else None),
        point=wanted.name,
        batch=wanted.batch,
        files=sum(len(trees[part].files) for part in parts),
        bytes=total,
        took_ms=watch(),
    )


def _places(path: Path, log: Path | None, fs: FileSystem) -> tuple[str, str | None, list[str]]:
    """Return the checkpoint's path or URL, the log's URL and the log's directories."""
    log_url = url_of(log, mode="rw", fs=fs) if log is not None else None
    logs = split_path(log) if log is not None and log_url is None else []
    target = store_url(path) or local_path(os.fspath(path))
    if target is None or len(logs) > 1:
        raise InvalidRequestError(
            f"path and log must each be a single directory on a local disk, or a URL; got {path} "
            f"and {log}",
            path=os.fspath(path),
        )
    return target, log_url, logs


def _check_new_store(
    url: str, wanted: Snapshot, storage_options: Mapping[str, Any] | None
) -> None:
    """Raise InvalidRequestError unless the snapshot can be restored to a URL."""
    if wanted.batch is None:
        raise InvalidRequestError(
            f"{url}: the snapshot {wanted.name} has no committed batch, and can be restored to a "
            "directory only",
            path=url,
        )
    open_new_store(url, storage_options)


def _check_log(
    url: str, wanted: Snapshot, tree: SnapshotTree | None, log: Path, *, is_url: bool
) -> None:
    """Raise InvalidRequestError if the snapshot has no log, or a log with another kind of home."""
    if tree is None:
        raise InvalidRequestError(
            f"{url}: the snapshot {wanted.name} has no log; leave out log", path=url
        )
    if tree.is_home and not is_url:
        raise InvalidRequestError(
            f"{os.fspath(log)}: the log in the snapshot was stored in a bucket ({tree.origin}), "
            "and can be restored only there: set log to a URL, such as s3://bucket/prefix",
            path=os.fspath(log),
        )
    if is_url and not tree.is_home:
        raise InvalidRequestError(
            f"{os.fspath(log)}: the log in the snapshot was stored in log dirs ({tree.origin}), "
            "and can be restored only to log dirs: set log to a directory",
            path=os.fspath(log),
        )


def _restore_log(
    archived: ArchivedLog,
    repository: Store,
    target: Store,
    finish: Callable[[], None],
    threads: int,
    clock: Clock,
) -> None:
    """Restore a log to an empty place, and the checkpoint last."""
    check_apart(repository, target)
    place = BucketTarget(store=target, threads=threads, finish=finish, clock=clock)
    fork_in_store(archived, place, _NEWEST, origin=f"the log of {archived.url}")


def _fetch_all(
    fs: FileSystem,
    fetcher: "_Fetcher",
    trees: Mapping[str, SnapshotTree],
    places: Mapping[str, str],
    roots: Mapping[str, str],
) -> None:
    """Fetch the trees that belong to directories, if there is room for all of them."""
    for part, place in places.items():
        _check_room(fs, os.path.dirname(place), trees[part].size)
    for part, root in roots.items():
        fetcher.fetch(trees[part], root)


def _finish(
    fs: FileSystem,
    clock: Clock,
    wanted: Snapshot,
    raw: str,
    target: str,
    follow: Callable[[Batches, int], None],
    storage_options: Mapping[str, Any] | None,
) -> None:
    if wanted.batch is not None:
        follow(Batches(Checkpoint.open(raw, fs)), wanted.batch)
        fork_checkpoint(
            raw, target, to=wanted.batch, sink=SinkKind.OTHER, storage_options=storage_options,
            fs=fs, clock=clock,
        )  # fmt: skip
        return
    fs.rename(raw, target)
    fs.sync_dir(os.path.dirname(target))


def _cut_sink(
    log: Path | None,
    output: Path | None,
    sink: str | None,
    announce: Announce | None,
    batches: Batches,
    batch: int,
) -> None:
    """Cut the output of a file sink before the checkpoint appears, as a repeated restore may."""
    chosen = choose_sink(batches.checkpoint, log=log, output=output, sink=sink)
    cut = plan_sink_cut(batches, batch, chosen, announce)
    if cut is not None:
        cut.stage()
        finish_cut(cut.fs, cut.output)


def _check_room(fs: FileSystem, directory: str, size: int) -> None:
    free = fs.free_bytes(directory)
    if free < size:
        raise StorageUnavailableError(
            f"{directory}: the restore needs {size} bytes, but {free} are free; restore to another "
            "disk",
            path=directory,
        )


class _Fetcher:
    """Fetches trees, several files at the same time, durably."""

    def __init__(
        self,
        fs: FileSystem,
        repository: Repository,
        total: int,
        threads: int,
        progress: Progress | None,
    ) -> None:
        self._fs, self._repository, self._threads = fs, repository, threads
        self._total, self._progress, self._done, self._mutex = total, progress, 0, Lock()

    def fetch(self, tree: SnapshotTree, root: str) -> None:
        """Fetch a tree into the new directory `root`.

        Raises:
            DataCorruptionError: An object is missing or damaged.
            StorageUnavailableError: The disk or the store fails.
        """
        directories = [root, *(os.path.join(root, path) for path in tree.directories)]
        for directory in directories:
            self._fs.mkdir(directory)
        with ThreadPoolExecutor(self._threads, "sparklog-restore") as pool:
            futures = [pool.submit(self._fetch, entry, root) for entry in tree.files]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        for directory in reversed(directories):
            self._fs.sync_dir(directory)

    def _fetch(self, entry: SnapshotFile, root: str) -> None:
        with self._fs.open(os.path.join(root, entry.path), create=True) as file:
            if entry.data is not None:
                file.pwrite(entry.data, 0)
                self.add(entry.size)
            at = 0
            for piece in entry.pieces():
                data = self._repository.get(piece)
                file.pwrite(data, at)
                at += len(data)
                self.add(len(data))
            file.sync()

    def add(self, size: int) -> None:
        """Count fetched bytes. Some pieces of a log in a bucket are fetched twice."""
        with self._mutex:
            self._done += size
            if self._progress is not None:
                self._progress(min(self._done, self._total), self._total)
