"""A copy of a checkpoint in Spark's own files, which becomes a checkpoint of the wanted kind."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.convert import export, import_
from sparklog.checkpoint.files import Checkpoint, own_path
from sparklog.checkpoint.staged_checkpoint import FORK, staged_checkpoint
from sparklog.checkpoint.stored_copies import CopyInRuns, open_new_store, spark_url
from sparklog.checkpoint.truncated_copy import copy_truncated
from sparklog.checkpoint.truncation import Truncation, below, plan_truncation, relocated
from sparklog.clock import Clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import FileSystem
from sparklog.logdir.paths import store_url

Path = str | os.PathLike[str]


@contextlib.contextmanager
def plain_copy(
    source: Checkpoint,
    batch: int,
    target: Path,
    *,
    scratch: Path | None,
    storage_options: Mapping[str, Any] | None,
    fs: FileSystem,
    clock: Clock,
) -> Iterator[tuple[Checkpoint, Callable[[], None]]]:
    """Copy a checkpoint as of a batch; yield the copy, and a function that makes it the target.

    The copy is in a directory beside the target; for a target in a bucket it is in a directory of
    `scratch`. The directory is removed at the end.

    Raises:
        InvalidRequestError: The target exists.
    """
    url = store_url(target)
    if url is not None:
        store = open_new_store(url, storage_options)
        with plain_view(source, batch, scratch=scratch, fs=fs, clock=clock) as plain:

            def put() -> None:
                copy = CopyInRuns(store, "rewrite", clock)
                there = relocated(plain, partial(below, spark_url(url)))
                copy.write(plain, Truncation(batch, frozenset(), there))
                copy.check_complete(batch)
                copy.publish()

            yield plain, put
        return
    path = own_path(target)
    if fs.exists(path):
        raise InvalidRequestError(f"{path} exists already: choose a new directory", path=path)
    with staged_checkpoint(fs, path, FORK) as staged:
        plain = _plain(source, batch, staged.directory, f"file:{path}", fs, clock)

        def publish() -> None:
            if source.is_log_backed:
                import_(staged.directory, fs=fs, clock=clock)
            staged.publish()

        yield plain, publish


@contextlib.contextmanager
def plain_view(
    source: Checkpoint, batch: int, *, scratch: Path | None, fs: FileSystem, clock: Clock
) -> Iterator[Checkpoint]:
    """Copy a checkpoint as of a batch into a temporary directory; yield the copy.

    Args:
        source: The checkpoint.
        batch: The batch.
        scratch: The directory of the copy; by default that of temporary files.
        fs: The file system of the copy.
        clock: The current time in milliseconds since the epoch.
    """
    parent = own_path(tempfile.gettempdir() if scratch is None else scratch)
    with staged_checkpoint(fs, os.path.join(parent, "sparklog-state"), FORK) as staged:
        yield _plain(source, batch, staged.directory, None, fs, clock)


def _plain(
    source: Checkpoint, batch: int, directory: str, root: str | None, fs: FileSystem, clock: Clock
) -> Checkpoint:
    truncation = plan_truncation(Batches(source), batch, root, is_reset=False)
    copy_truncated(source, truncation, directory, fs=fs, clock=clock)
    export(directory, fs=fs, clock=clock)
    return Checkpoint(directory, fs)
