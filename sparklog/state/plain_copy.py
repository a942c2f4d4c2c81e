"""A copy of a checkpoint in Spark's own files, which becomes a checkpoint of the wanted kind."""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.convert import export, import_
from sparklog.checkpoint.files import Checkpoint, own_path
from sparklog.checkpoint.log_backed.layout import RESET
from sparklog.checkpoint.running_query import check_no_running_batch, report_concurrent_cleanup
from sparklog.checkpoint.spark_files.checksums import hadoop_name
from sparklog.checkpoint.spark_files.metadata_logs import MetadataLogFile, read_metadata_log
from sparklog.checkpoint.staged_checkpoint import FORK, staged_checkpoint
from sparklog.checkpoint.stored_copies import (
    ChangedRuns,
    CopyInRuns,
    open_new_store,
    runs_of,
    spark_url,
)
from sparklog.checkpoint.truncated_copy import copy_truncated
from sparklog.checkpoint.truncation import Truncation, below, plan_truncation, relocated
from sparklog.clock import Clock
from sparklog.errors import InvalidRequestError, LogLockedError
from sparklog.fs import FileSystem, write_durably
from sparklog.logdir.paths import store_url
from sparklog.logdir.staged_directory import remove_all
from sparklog.state.in_place import check_newest, replacement
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]
_VERSIONS: Final = ("v1", "v2", "v3")


@dataclass(frozen=True, slots=True)
class PlainCopy:
    """A copy of a checkpoint in Spark's own files.

    Attributes:
        checkpoint: The copy.
        target: The path or URL of the checkpoint that the copy becomes.
        place: The URL of the checkpoint in operators' metadata.
        publish: Makes the copy the target. It doesn't need the source any more.
        restore_point: Where the original is afterwards, if the copy replaces it; else None.
    """

    checkpoint: Checkpoint
    target: str
    place: str
    publish: Callable[[], None]
    restore_point: str | None = None


def open_original(
    source: Path, fs: FileSystem, storage_options: Mapping[str, Any], *, to_end: bool = True
) -> Checkpoint:
    """Open a checkpoint from which a new one is made; for the arguments see `Checkpoint.open`.

    Raises:
        InvalidRequestError: A reset of the checkpoint is unfinished.
    """
    checkpoint = Checkpoint.open(
        source, fs, to_end=to_end, needs_id=True, storage_options=storage_options
    )
    if checkpoint.exists(RESET):
        # The copy would not have the request, and the sink would drop its next batches.
        raise InvalidRequestError(
            f"{checkpoint.path}: a reset of the checkpoint is unfinished: run the same reset again "
            "first",
            path=checkpoint.path,
        )
    return checkpoint


@contextlib.contextmanager
def plain_fork(
    source: Path,
    target: Path | None,
    *,
    to: int | None,
    in_place: bool,
    scratch: Path | None,
    storage_options: Mapping[str, Any] | None,
    fs: FileSystem,
    clock: Clock,
) -> Iterator[tuple[Batches, int, PlainCopy]]:
    """Yield a checkpoint's batches, a batch that its query can continue after, and a copy.

    Args:
        source: The checkpoint.
        target: The new checkpoint; None if the copy replaces the original.
        to: The batch; None for the newest.
        in_place: Whether the copy replaces the original.
        scratch: The directory of the copy for a target in a bucket.
        storage_options: Options of fsspec for checkpoints in a bucket.
        fs: The file system of the checkpoints.
        clock: The current time in milliseconds since the epoch.

    Raises:
        InvalidRequestError: The target exists, the query can't continue after the batch, or a reset
            of the checkpoint is unfinished.
        LogLockedError: The query removes files that the batch needs.
    """
    options = storage_options or {}
    if in_place == (target is not None):
        raise InvalidRequestError("name a target, or choose in_place (--in-place); not both")
    with report_concurrent_cleanup(source), contextlib.ExitStack() as stack:
        checkpoint = open_original(source, fs, options)
        # Now, because the change must fail if the query writes another entry from here on.
        run = None
        if in_place and (runs := runs_of(checkpoint)) is not None:
            run = ChangedRuns(runs, "rewrite", clock)
        batches = Batches(checkpoint)
        batch = reachable_batch(batches, to)
        if target is not None:
            copying = plain_copy(
                batches, batch, target, scratch=scratch, storage_options=options, fs=fs,
                clock=clock,
            )  # fmt: skip
            yield batches, batch, stack.enter_context(copying)
            return
        if run is not None:
            copying = _copy_for_new_run(
                batches, batch, run, scratch=scratch, storage_options=options, fs=fs, clock=clock
            )
            yield batches, batch, stack.enter_context(copying)
            return
        replaced = stack.enter_context(replacement(batches, batch, clock))
        copying = plain_copy(
            batches, batch, replaced.restore_point, place=checkpoint.path, scratch=scratch,
            storage_options=options, fs=fs, clock=clock,
        )  # fmt: skip
        copy = stack.enter_context(copying)

        def publish() -> None:
            replaced.check_stopped()
            copy.publish()
            replaced.exchange()

        yield (
            batches,
            batch,
            replace(
                copy, target=checkpoint.path, publish=publish, restore_point=replaced.restore_point
            ),
        )


@contextlib.contextmanager
def plain_copy(
    source: Batches,
    batch: int,
    target: Path,
    *,
    scratch: Path | None,
    storage_options: Mapping[str, Any] | None,
    fs: FileSystem,
    clock: Clock,
    place: str | None = None,
    is_log_backed: bool | None = None,
) -> Iterator[PlainCopy]:
    """Copy a checkpoint as of a batch, for a new checkpoint.

    The copy is in a directory beside the target; for a target in a bucket it is in a directory of
    `scratch`. The directory is removed at the end.

    Args:
        source: The batches of the checkpoint.
        batch: The batch.
        target: The new checkpoint.
        scratch: The directory of the copy for a target in a bucket.
        storage_options: Options of fsspec for a target in a bucket.
        fs: The file system of the copy.
        clock: The current time in milliseconds since the epoch.
        place: The path at which a query will use a local target; by default the target.
        is_log_backed: Whether a local target becomes log-backed; by default if the source is.

    Raises:
        InvalidRequestError: The target exists.
    """
    check_free(target, fs, storage_options)
    url = store_url(target)
    if url is not None:
        store = open_store(url, storage_options)
        with plain_view(source, batch, scratch=scratch, fs=fs, clock=clock) as plain:

            def put() -> None:
                there = relocated(plain, partial(below, spark_url(url)))
                _put(store, plain, Truncation(batch, frozenset(), there), clock)

            yield PlainCopy(plain, url, f"file:{plain.path}", put)
        return
    path = own_path(target)
    if is_log_backed is None:
        is_log_backed = source.checkpoint.is_log_backed
    with staged_checkpoint(fs, path, FORK) as staged:
        root = f"file:{place or path}"
        plain = _plain(source, batch, staged.directory, root, fs, clock)

        def publish() -> None:
            if is_log_backed:
                import_(staged.directory, fs=fs, clock=clock)
            staged.publish()

        yield PlainCopy(plain, path, root, publish)


@contextlib.contextmanager
def _copy_for_new_run(
    source: Batches,
    batch: int,
    run: ChangedRuns,
    *,
    scratch: Path | None,
    storage_options: Mapping[str, Any],
    fs: FileSystem,
    clock: Clock,
) -> Iterator[PlainCopy]:
    """Copy a checkpoint in runs, for another run of the same checkpoint.

    A checkpoint in a bucket can't get another name, so the restore point is a copy.

    Raises:
        InvalidRequestError: The checkpoint has batches after `batch`, or an import or export was
            interrupted.
        LogLockedError: The query is running.
    """
    check_newest(source, batch)
    check_no_running_batch(source, clock())
    run.check_converted()
    url = source.checkpoint.path
    point = f"{url}.restore-point-{clock()}"
    home, kept = spark_url(url), plan_truncation(source, batch, spark_url(point), is_reset=False)
    store = open_new_store(point, storage_options)
    with plain_view(source, batch, scratch=scratch, fs=fs, clock=clock) as plain:

        def put() -> None:
            run.seal()
            _put(store, source.checkpoint, kept, clock)
            try:
                changed = relocated(plain, partial(below, home))
                run.replace(plain, Truncation(batch, frozenset(), changed))
            except LogLockedError:
                # Nothing is changed, so nobody needs the copy.
                store.delete([listed.name for listed in store.list()])
                raise

        yield PlainCopy(plain, url, f"file:{plain.path}", put, point)


def _put(store: Store, checkpoint: Checkpoint, truncation: Truncation, clock: Clock) -> None:
    """Write a checkpoint in runs at a new location."""
    copy = CopyInRuns(store, "rewrite", clock)
    copy.write(checkpoint, truncation)
    copy.check_complete(truncation.batch)
    copy.publish()


@contextlib.contextmanager
def plain_view(
    source: Batches, batch: int, *, scratch: Path | None, fs: FileSystem, clock: Clock
) -> Iterator[Checkpoint]:
    """Copy a checkpoint as of a batch into a temporary directory; yield the copy.

    Args:
        source: The batches of the checkpoint.
        batch: The batch.
        scratch: The directory of the copy; by default the system's directory of temporary files.
        fs: The file system of the copy.
        clock: The current time in milliseconds since the epoch.
    """
    with staged_checkpoint(fs, scratch_name(scratch), FORK) as staged:
        yield _plain(source, batch, staged.directory, None, fs, clock)


def edit_metadata_log(
    copy: Checkpoint, path: str, edit: Callable[[MetadataLogFile], MetadataLogFile]
) -> None:
    """Change a file of `offsets` or `commits`, or an operator's metadata.

    Raises:
        DataCorruptionError: The file isn't in Spark's format.
    """
    file = edit(read_metadata_log(copy.read(path), copy.locate(path)[0], _VERSIONS))
    document = json.dumps(file.metadata, separators=(",", ":"))
    # Hadoop would verify the new content by the checksum of the old content.
    remove_all(copy.fs, copy.real(hadoop_name(path)))
    # The file may be a hard link to the original's file, so it is replaced, not changed.
    lines = (f"v{file.version}", document, *file.lines)
    write_durably(copy.fs, copy.real(path), "\n".join(lines).encode())


def check_free(
    target: Path, fs: FileSystem, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Check that there is nothing at the place of a new checkpoint.

    Raises:
        InvalidRequestError: The target exists.
    """
    url = store_url(target)
    if url is not None:
        open_new_store(url, storage_options)
    elif fs.exists(path := own_path(target)):
        raise InvalidRequestError(f"{path} exists already: choose a new directory", path=path)


def scratch_name(scratch: Path | None) -> str:
    """Return the path by which temporary directories are named."""
    if scratch is None or store_url(scratch) is not None:
        scratch = tempfile.gettempdir()
    parent = own_path(scratch)
    return os.path.join(parent, "sparklog-state")


def reachable_batch(batches: Batches, batch: int | None) -> int:
    """Return a batch that a query can continue after; by default the newest committed batch.

    Raises:
        InvalidRequestError: The query can't continue after the batch.
    """
    found = max(batches.committed, default=-1) if batch is None else batch
    batches.check_reachable(found)
    return found


def _plain(
    source: Batches, batch: int, directory: str, root: str | None, fs: FileSystem, clock: Clock
) -> Checkpoint:
    truncation = plan_truncation(source, batch, root, is_reset=False)
    copy_truncated(source.checkpoint, truncation, directory, fs=fs, clock=clock)
    export(directory, fs=fs, clock=clock)
    return Checkpoint(directory, fs)
