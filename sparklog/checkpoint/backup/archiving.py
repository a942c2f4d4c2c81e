"""`archive`: backs up a checkpoint, or checkpoint and log at the same batch, to an fsspec URL.

The backup is incremental. The archived files are a fork, made of hard links beside the original, so
that query and log may continue during the upload, and log, state and checkpoint are of the same
batch. The fork of a log in a bucket refers to its objects (forked_log.py).
"""

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sparklog.checkpoint.backup import snapshots
from sparklog.checkpoint.backup.forked_log import ForkedLog
from sparklog.checkpoint.backup.repository import Repository, as_keyring
from sparklog.checkpoint.backup.snapshots import CHECKPOINT, LOG, Snapshot, SnapshotTrees
from sparklog.checkpoint.backup.upload import (
    DAY_MS,
    DirectoryFiles,
    TreeSource,
    Uploader,
    check_threads,
)
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint, check_not_nested, local_path, own_path
from sparklog.checkpoint.fork import fork as fork_checkpoint
from sparklog.checkpoint.history import query_id, writer_name
from sparklog.checkpoint.query_sink import SinkKind
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.diskless.home_object import known_home
from sparklog.diskless.log_creation import check_apart
from sparklog.errors import DataCorruptionError, InvalidRequestError, StorageUnavailableError
from sparklog.fs import LOCAL, FileSystem, LocalFileSystem
from sparklog.fs.files import translate_os_errors
from sparklog.log.fork_points import ForkPointRequest
from sparklog.logdir.forking.fork import fork as fork_log
from sparklog.logdir.paths import split_path, store_url
from sparklog.logdir.staged_directory import StagedDirectories
from sparklog.opening import url_of
from sparklog.progress import Progress, shows_progress
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

_LOGGER: Final = logging.getLogger(__name__)
_LOOKS: Final = 3
Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """The result of a backup.

    Attributes:
        url: The repository.
        point: The name of the new snapshot.
        batch: The batch in the snapshot; None for a directory that is not a checkpoint.
        log: Whether the snapshot contains the query's log.
        files: The number of files in the snapshot.
        bytes: The size of `files`.
        read_bytes: How many bytes were read to find out which files are new.
        new_files: The number of files that were uploaded.
        new_bytes: The size of `new_files`.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> from sparklog.checkpoint import archive
        >>> first = archive("checkpoint", bucket)
        >>> again = archive("checkpoint", bucket)
        >>> first.batch, again.new_files < first.new_files
        (2, True)
    """

    url: str
    point: str
    batch: int | None
    log: bool
    files: int
    bytes: int
    read_bytes: int
    new_files: int
    new_bytes: int
    took_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


@shows_progress("archiving")
def archive(
    path: Path,
    url: str,
    *,
    batch: int | None = None,
    log: Path | None = None,
    writer: str | None = None,
    leave_remote: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    keyring: Keyring | str | None = None,
    checkpoint_storage_options: Mapping[str, Any] | None = None,
    log_storage_options: Mapping[str, Any] | None = None,
    log_keyring: str = "",
    rewrite_days: int = 30,
    threads: int = 4,
    progress: Progress | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Archived:
    """Archive a checkpoint, and the log that its query writes, as a new snapshot at a URL.

    Args:
        path: The checkpoint: a local path, or the URL of a checkpoint that Spark keeps in a bucket.
        url: The repository: an fsspec URL. Snapshots share files.
        batch: The batch to archive, by default the newest committed batch; a query must be able to
            continue after it. A directory that is not a checkpoint has no batch.
        log: The sink's log, which is archived as of this batch.
        writer: The query's name in the log; by default the query's id.
        leave_remote: Whether the snapshot refers to the log's remote segments instead of containing
            them.
        storage_options: Options of fsspec for the repository.
        keyring: Encrypts the snapshot: a `sparklog.tiered.Keyring`, or the path of its file.
        checkpoint_storage_options: Options of fsspec for a checkpoint in a bucket, if they differ
            from `storage_options`.
        log_storage_options: Options of fsspec for a log in a bucket, if they differ from
            `storage_options`.
        log_keyring: The path of the keyring of a log in a bucket, to cut segments at the batch.
        rewrite_days: Files that the repository has had for longer are uploaded again, so that a
            lifecycle rule of the bucket may delete old objects; docs/replay.md has such a rule.
        threads: The number of files that are uploaded at the same time, each with a piece (16 MiB)
            in memory.
        progress: Called with the number of bytes done, and the total.
        fs: The file system of the checkpoint; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: The batch can't be archived, the URL or keyring is invalid, or the
            repository contains another query.
        LogLockedError: The checkpoint is being archived already.
        StorageUnavailableError: The store fails. No snapshot is made; uploaded files stay.
        DataCorruptionError: A file is damaged. No snapshot is made.

    Cost:
        Large files of the newest snapshot are not read; other files are uploaded if they are
        missing. Two listings of the repository's files. A checkpoint in a bucket is first copied to
        the directory for temporary files (TMPDIR), each time.

    Examples:
        >>> from sparklog.checkpoint import archive
        >>> archive("checkpoint", bucket, log="log").batch
        2
    """
    watch = stopwatch()
    own_options = checkpoint_storage_options or storage_options
    home = _home(fs, path)
    check_threads(threads)
    rewrite_ms = _rewrite_ms(rewrite_days)
    store, ring = open_store(url, storage_options), as_keyring(keyring)
    in_store = _log_in_store(log, store, log_storage_options or storage_options, fs, leave_remote)
    if store_url(path) is not None:
        check_apart(open_store(home, own_options), store)
    homes = _homes(store.url, home, None if in_store is not None else log)
    repository = Repository.writing(store, ring)
    # The upload can take hours. It reads a fork, which neither the query nor retention changes.
    with _staging_directories(fs, homes) as staged:
        checkpoint = _checkpoint(fs, home, own_options)
        chosen = _batch(checkpoint, home, batch)
        newest = snapshots.list_snapshots(store)[-1:]
        query = query_id(checkpoint) if checkpoint is not None else None
        known = _known(repository, newest, ring, query)
        root = staged.directories[0]
        if chosen is not None:
            fork_checkpoint(
                home, root, to=chosen, sink=SinkKind.OTHER, storage_options=own_options, fs=fs,
                clock=clock,
            )  # fmt: skip
        parts: dict[str, TreeSource] = {
            CHECKPOINT: DirectoryFiles(fs, home if chosen is None else root, home)
        }
        writer_id = None if log is None else _writer_name(checkpoint, home, writer)
        if writer_id is not None and in_store is not None:
            forked = ForkedLog(staged.beside(0, LOG), in_store, known.get(LOG), threads, clock)
            parts[LOG] = forked.make(writer_id, chosen or 0, log_keyring)
        elif writer_id is not None and log is not None:
            parts[LOG] = _forked_log_dirs(fs, log, staged, writer_id, chosen, clock, leave_remote)
        uploader = Uploader(
            repository, known, clock=clock, rewrite_ms=rewrite_ms, threads=threads,
            progress=progress,
        )  # fmt: skip
        trees = uploader.upload(parts)
        trees[CHECKPOINT] = replace(trees[CHECKPOINT], query=query)
        made = _next_snapshot(clock(), newest, chosen, has_log=LOG in trees)
        snapshots.write(repository, made, trees)
    return Archived(
        url=store.url, point=made.name, batch=chosen, log=log is not None,
        took_ms=watch(), **asdict(uploader.stats),
    )  # fmt: skip


def _forked_log_dirs(
    fs: FileSystem,
    log: Path,
    staged: StagedDirectories,
    writer: str,
    batch: int | None,
    clock: Clock,
    leave_remote: bool,
) -> DirectoryFiles:
    """Return the log's files as of a batch."""
    wanted = ForkPointRequest(writer=writer, batch=batch, leave_remote=leave_remote)
    fork_log(log, staged.directories[1], wanted, fs=fs, clock=clock)
    return DirectoryFiles(fs, staged.directories[1], os.fspath(log))


def _home(fs: FileSystem, path: Path) -> str:
    """Return the local directory at `path`, or the URL of a store.

    Raises:
        InvalidRequestError: The path is not an existing local directory.
    """
    if (url := store_url(path)) is not None:
        return url
    local = local_path(os.fspath(path))
    if local is None or not fs.is_dir(local):
        raise InvalidRequestError(
            f"{path} must be an existing directory on a local disk, or a URL such as "
            "s3://bucket/checkpoint",
            path=os.fspath(path),
        )
    return local


def _log_in_store(
    log: Path | None,
    target: Store,
    storage_options: Mapping[str, Any] | None,
    fs: FileSystem,
    leave_remote: bool,
) -> Store | None:
    """Return the bucket that is the home of the log; None for log dirs and without a log.

    Raises:
        InvalidRequestError: The bucket has no log, or log and repository are nested.
    """
    url = None if log is None else url_of(log, fs=fs)
    if url is None:
        return None
    if leave_remote:
        raise InvalidRequestError(
            f"{url}: leave_remote applies only to a log in log dirs; leave it out for a log in a "
            "bucket",
            path=url,
        )
    store = open_store(url, storage_options)
    check_apart(store, target)
    known_home(store)
    return store


def _rewrite_ms(days: int) -> int:
    if days < 1:
        raise InvalidRequestError(f"rewrite_days must be at least 1; got {days}")
    return days * DAY_MS


def _homes(url: str, checkpoint: str, log: Path | None) -> list[str]:
    """Return the directories of the checkpoint and of the query's log, if any.

    Raises:
        InvalidRequestError: The repository is inside the checkpoint or the log, so that each
            snapshot would contain all earlier snapshots; or the log is inside the checkpoint, and
            would be archived twice.
    """
    homes = [checkpoint, *([] if log is None else split_path(log)[:1])]
    for log in homes[1:]:
        check_not_nested(homes[0], log)
    target = local_path(url)
    for home in homes:
        if target is not None and f"{own_path(target)}/".startswith(f"{own_path(home)}/"):
            raise InvalidRequestError(
                f"the repository {url} is inside {home}, which is to be archived: choose another "
                "URL",
                path=url,
            )
    return homes


def _next_snapshot(
    now_ms: int, newest: list[Snapshot], batch: int | None, *, has_log: bool
) -> Snapshot:
    """Return a snapshot with the highest name, even if the clock was set back."""
    # A restore takes the snapshot with the highest name.
    time_ms = max(now_ms, *(each.time_ms + 1 for each in newest), 0)
    return Snapshot.make(time_ms, batch, uuid.uuid4().hex[:12], has_log=has_log)


def _staging_directories(fs: FileSystem, homes: Sequence[str]) -> StagedDirectories:
    """Return working directories beside `homes`, or in the temporary directory.

    The temporary directory is used for a read-only mount or a bucket. Files can't be linked there
    and are copied.
    """

    def name(home: str) -> str:
        is_stored = store_url(home) is not None
        if not is_stored and not isinstance(fs, LocalFileSystem):
            return home
        if not is_stored and os.access(os.path.dirname(home), os.W_OK):
            return home
        return temporary_path(home)

    return StagedDirectories(fs, [name(home) for home in homes], "archive", fresh=False)


def temporary_path(home: str) -> str:
    """Return a path in a directory for temporary files, which stands for `home`.

    Raises:
        StorageUnavailableError: Other users can access the directory.
    """
    digest = hashlib.sha256(home.encode()).hexdigest()[:8]
    return os.path.join(_private_directory(), f"{os.path.basename(home)}-{digest}")


def _private_directory() -> str:
    """Return a directory for temporary files that no other user can read or write."""
    path = os.path.join(tempfile.gettempdir(), f"sparklog-{os.getuid()}")
    with translate_os_errors("make directory", path):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StorageUnavailableError(
            f"{path} must be a directory that only this user can access (mode 700): remove it, or "
            "set TMPDIR to a directory of your own", path=path,
        )  # fmt: skip
    return path


def _checkpoint(
    fs: FileSystem, path: str, storage_options: Mapping[str, Any] | None
) -> Checkpoint | None:
    """Return the checkpoint at a path, or None for a directory that is no query's checkpoint."""
    try:
        checkpoint = Checkpoint.open(path, fs, needs_id=True, storage_options=storage_options or {})
    except InvalidRequestError:
        if store_url(path) is not None:
            raise
        return None
    is_one = query_id(checkpoint) is not None or checkpoint.names("commits")
    return checkpoint if is_one else None


def _batch(checkpoint: Checkpoint | None, path: str, batch: int | None) -> int | None:
    """Return the batch to archive, or None for a directory that is not a query's checkpoint."""
    if checkpoint is None:
        if batch is not None:
            raise InvalidRequestError(
                f"{path} is not the checkpoint of a query, so it has no batches: leave out batch",
                path=os.fspath(path),
            )
        return None
    if batch is not None:
        return batch
    return _newest(checkpoint)


def _newest(checkpoint: Checkpoint) -> int:
    """Return the newest committed batch.

    Raises:
        InvalidRequestError: There is no committed batch, or the newest batch is incomplete.
    """
    for looks in range(_LOOKS, 0, -1):
        batches = Batches(checkpoint)
        if not batches.committed:
            path = checkpoint.path
            cure = (
                "let the query finish a batch"
                if len(batches.planned) < 2
                else f"`sparklog checkpoint verify {path}` reports what is missing"
            )
            raise InvalidRequestError(f"{path} has no committed batch: {cure}", path=path)
        newest = batches.committed[-1]
        obstacle = batches.obstacle(newest)
        if obstacle is None:
            return newest
        if looks > 1:
            checkpoint.refresh()  # a running query adds and removes files
    older = next((b for b in reversed(batches.committed) if batches.obstacle(b) is None), None)
    hint = (
        "no older batch can be archived either"
        if older is None
        else f"the newest batch that can be archived is {older}"
    )
    raise InvalidRequestError(
        f"{checkpoint.path}: the newest batch, {newest}, can't be archived: {obstacle}; {hint} "
        "(option --batch, batch=). No snapshot was written; `sparklog checkpoint verify "
        f"{checkpoint.path}` reports all damage",
        path=checkpoint.path,
    )


def _writer_name(checkpoint: Checkpoint | None, path: str, writer: str | None) -> str:
    if checkpoint is None:
        raise InvalidRequestError(
            f"{path} is not the checkpoint of a query: archive it without the log",
            path=os.fspath(path),
        )
    return writer_name(checkpoint, writer)


def _known(
    repository: Repository, newest: list[Snapshot], ring: Keyring | None, query: str | None
) -> SnapshotTrees:
    """Return the trees of the newest snapshot if the snapshot can be read and has the same key.

    Raises:
        InvalidRequestError: The snapshot belongs to another query.
    """
    trees: SnapshotTrees = {}
    for snapshot in newest:
        try:
            known, trees = snapshots.read(repository.store, snapshot, ring)
        except (InvalidRequestError, DataCorruptionError) as error:
            _LOGGER.warning(
                "the newest snapshot can't be used (%s), so all files are read again", error
            )
            continue
        other = trees[CHECKPOINT].query
        if None not in (query, other) and other != query:
            raise InvalidRequestError(
                f"{repository.store.url} contains snapshots of query {other}, but the checkpoint "
                f"belongs to query {query}: use a separate URL for each query, because restore "
                "takes the newest snapshot",
                path=repository.store.url,
            )
        trees = trees if known.key_id == repository.key_id else {}
    return trees
