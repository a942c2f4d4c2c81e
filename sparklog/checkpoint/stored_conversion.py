"""`import_` and `export` of a checkpoint in an object store: files become runs, and runs files.

The object HOME decides how a checkpoint is kept: with HOME its content is in runs, and files beside
the runs are leftovers; without HOME the files are the content. HOME is created after everything is
in runs, and deleted after everything is in files. A crash leaves one or the other, and the same
call again does the rest. `stored_copies.complete_in_runs` has completed an interrupted conversion
before either function is called.
"""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.layout import LOGS, RUNS_SCHEME
from sparklog.checkpoint.log_backed.metadata_marker import MARKER_OF_RUNS, METADATA_FILE
from sparklog.checkpoint.run_writer import RunWriter, put_object
from sparklog.checkpoint.running_query import check_no_running_batch, check_unchanged, plans_of
from sparklog.checkpoint.stored_copies import (
    HADOOP_SCHEMES,
    OBJECTS,
    CopyInRuns,
    files_beside,
    runs_of,
    spark_url,
)
from sparklog.checkpoint.stored_files import StoredFiles
from sparklog.checkpoint.stored_runs import HOME, RunEnd, RunFiles
from sparklog.checkpoint.truncation import Truncation, below, relocated
from sparklog.clock import Clock
from sparklog.errors import LogLockedError
from sparklog.fs import FileSystem
from sparklog.logdir.staged_directory import remove_all
from sparklog.tiered.object_store.store import Store

_PUTS: Final = 16
_OF_RUNS: Final = re.compile(r"sparklog/[0-9a-f-]{36}/(run|index|pack)-")


def import_to_runs(checkpoint: Checkpoint, clock: Clock) -> tuple[int, int]:
    """Move the files of a checkpoint into runs. Return the number of files and their bytes.

    Raises the errors of `import_`.
    """
    assert isinstance(checkpoint.fs, StoredFiles)
    store, files, size = checkpoint.fs.store, 0, 0
    if runs_of(checkpoint) is None:
        check_no_running_batch(Batches(checkpoint), clock())
        before, files, left = plans_of(checkpoint), len(checkpoint.paths()), files_beside(store)
        copy = CopyInRuns(store, "import", clock)
        replaced = relocated(checkpoint, partial(_in_runs, checkpoint.path))
        size = copy.write(checkpoint, Truncation(-1, frozenset(), replaced))
        check_unchanged(checkpoint, before, "the import")
        copy.create_home()
    else:
        left = files_beside(store)
    # From here on, Spark's own manager would start the query again at batch 0, without the marker.
    store.put(METADATA_FILE, MARKER_OF_RUNS)
    store.delete(left)
    return files, size


def export_from_runs(checkpoint: Checkpoint, clock: Clock) -> tuple[int, int]:
    """Write the files of a checkpoint in runs as objects, and delete the runs.

    Returns the number of files and their bytes. Raises the errors of `export`.
    """
    assert isinstance(checkpoint.fs, StoredFiles)
    store, runs, paths, size = checkpoint.fs.store, runs_of(checkpoint), checkpoint.paths(), 0
    if runs is None:
        _delete_runs(store, checkpoint.disk)  # of an interrupted export
        return 0, 0
    writer = RunWriter(store, runs.id, runs.end, "export", clock)
    check_no_running_batch(Batches(checkpoint), clock())
    left = files_beside(store)
    for path in paths:
        writer.refer(path, runs.locate(path))
    writer.publish()
    replaced = relocated(checkpoint, lambda file: file.removeprefix(RUNS_SCHEME))

    written = [path for path in paths if path != METADATA_FILE]

    def contents() -> Iterator[tuple[str, bytes]]:
        for path in written:
            yield path, replaced[path] if path in replaced else checkpoint.read(path)

    with ThreadPoolExecutor(_PUTS, "sparklog-export") as pool:
        waiting = contents()
        while some := list(islice(waiting, _PUTS)):
            list(pool.map(lambda each: put_object(store, *each), some))
            size += sum(len(data) for _, data in some)
    store.delete([name for name in left if name not in paths])
    try:
        _check_newest(checkpoint, runs, writer.run)
    except LogLockedError:
        store.delete(written)
        raise
    if METADATA_FILE in paths:
        metadata = checkpoint.read(METADATA_FILE)
        store.put(METADATA_FILE, metadata)
        size += len(metadata)
    store.delete([HOME])
    try:
        _check_newest(checkpoint, runs, writer.run)
    except Exception:  # a driver that has read HOME just before needs the runs
        store.put(HOME, writer.home())
        store.put(METADATA_FILE, MARKER_OF_RUNS)
        store.delete(written)
        raise
    _delete_runs(store, checkpoint.disk)
    return len(paths), size


def _check_newest(checkpoint: Checkpoint, runs: RunFiles, run: int) -> None:
    """Check that the export's run is the newest run, and still has a single entry.

    Raises:
        LogLockedError: A query was started during the export.
    """
    runs.list()
    if runs.end != RunEnd(run, 1, is_sealed=False):
        raise LogLockedError(
            f"{checkpoint.path}: the query was started during the export: stop the query, and try "
            "again",
            path=checkpoint.path,
        )


def _in_runs(url: str, file: str) -> str:
    """Return the URL of a schema file after an import of the checkpoint at a URL.

    Host and port stay as Spark has written them, unless the checkpoint was copied from elsewhere.
    """
    scheme, colon, rest = file.removeprefix(RUNS_SCHEME).partition(":")
    if colon and urlsplit(file).path.startswith(f"{urlsplit(url).path}/state/"):
        return f"{RUNS_SCHEME}{HADOOP_SCHEMES.get(scheme, scheme)}:{rest}"
    return below(spark_url(url), file)


def _delete_runs(store: Store, disk: FileSystem) -> None:
    names = [listed.name for listed in store.list(OBJECTS)]
    store.delete([name for name in names if _OF_RUNS.match(name)])
    directory = store.url.removeprefix("file://")
    if directory != store.url and not store.list(OBJECTS):
        # Without objects the directories could be mistaken for a log dir.
        remove_all(disk, os.path.join(directory, LOGS))
