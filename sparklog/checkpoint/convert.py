"""`import_` turns a checkpoint's files into records, in place; `export` turns them back.

The content of the checkpoint stays the same at any moment. A live record takes precedence over a
file, so records are written and synced before the files are removed. An export writes and syncs
files before the log dir is removed by a single rename. A crash leaves some files and some records,
which is also a valid checkpoint; the same call again does the rest.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.layout import FILE_BYTES_MAX, address_of, stays_file
from sparklog.checkpoint.log_backed.lock import LOCK_NAME, CheckpointLock
from sparklog.checkpoint.log_backed.metadata_marker import METADATA_FILE, has_marker, write_marker
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import FileWriter, Record, append, create
from sparklog.checkpoint.running_query import check_no_running_batch, keep_stopped
from sparklog.checkpoint.spark_files.checksums import hadoop_name
from sparklog.checkpoint.staged_checkpoint import remove_log_dir
from sparklog.checkpoint.stored_conversion import export_from_runs, import_to_runs
from sparklog.checkpoint.stored_copies import complete_in_runs
from sparklog.checkpoint.stored_files import open_files
from sparklog.checkpoint.truncated_copy import copy_log_dir_ownership, copy_mode_and_owner
from sparklog.checkpoint.unfinished_reset import complete
from sparklog.clock import Clock, system_clock
from sparklog.fs import LOCAL, FileSystem, read_bytes
from sparklog.logdir.broker_lockout import is_unsound

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The result of `import_` or `export`.

    Attributes:
        path: The checkpoint.
        files: The number of files that became records, or of records that became files.
        bytes: The size of these files.
        partitions: The number of partitions of the checkpoint's log dir; 0 in a bucket.

    Examples:
        >>> from sparklog.checkpoint import import_
        >>> import_("checkpoint").path.endswith("checkpoint")
        True
    """

    path: str
    files: int
    bytes: int
    partitions: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def import_(
    path: Path,
    *,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Converted:
    """Move the files of a checkpoint into its log dir, or into runs if it is in a bucket.

    The query must be stopped. After the import it needs sparklog's checkpoint manager; `export` is
    the way back. On a disk RocksDB's zips, files below SSTs and logs, and files over 32 MiB stay
    files. Hadoop's checksum files of imported files are removed.

    Args:
        path: The checkpoint: a local path, or a URL.
        storage_options: Options of fsspec for a checkpoint in a bucket.
        fs: The file system of the checkpoint; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: There is no checkpoint.
        LogLockedError: The query is running.
        DataCorruptionError: The log dir is damaged.
        StorageUnavailableError: The disk fails. Call the function again; no file or record is lost.

    Cost:
        Reads and writes every file once, with a partition at a time in memory. In a bucket a GET
        per file, a PUT per 16 MiB, and a listing.

    Examples:
        >>> from sparklog.checkpoint import history, import_
        >>> converted = import_("checkpoint")
        >>> history("checkpoint").is_log_backed
        True
    """
    checkpoint = Checkpoint.open(path, fs, storage_options=storage_options or {})
    if checkpoint.fs is fs and is_unsound(fs, checkpoint.path) and not checkpoint.is_log_backed:
        # The manager keeps no log dir on a shared disk, either.
        url = f"file://{checkpoint.path}"
        checkpoint = Checkpoint(url, open_files(url, None), disk=fs)
    if checkpoint.fs is not fs:
        complete_in_runs(checkpoint, storage_options, fs=fs, clock=clock)
        count, size = import_to_runs(checkpoint, clock)
        return Converted(path=checkpoint.path, files=count, bytes=size, partitions=0)
    complete(checkpoint.path, fs=fs, clock=clock)
    with contextlib.ExitStack() as stack:
        is_new = not fs.is_dir(checkpoint.logs)
        if is_new:
            check_no_running_batch(Batches(checkpoint), clock())
            fs.mkdir(checkpoint.logs)
        lock = stack.enter_context(CheckpointLock(fs, checkpoint.logs, create=True))
        fs.sync_dir(checkpoint.logs)
        fs.sync_dir(checkpoint.path)
        lock.take_running("import it")
        # The query may have run another batch before the lock was acquired.
        checkpoint.refresh()
        by_partition: dict[str, list[str]] = {}
        for file in checkpoint.paths():
            real = checkpoint.real(file)
            is_file = file in checkpoint.files() and not stays_file(file)
            if is_file and fs.size(real) <= FILE_BYTES_MAX:
                by_partition.setdefault(address_of(file).partition, []).append(file)
        size = 0
        for name, files in by_partition.items():
            size += _take_over(checkpoint, lock, name, files)
        # The query may run as another user than the import.
        if is_new and by_partition:
            model = checkpoint.real(next(iter(by_partition.values()))[0])
            copy_log_dir_ownership(fs, checkpoint.path, checkpoint.path, model)
        _remove(checkpoint, [file for files in by_partition.values() for file in files])
        # From here on, Spark's own manager would start the query again at batch 0, without the
        # marker: the files that it looks for are records now.
        if checkpoint.exists(METADATA_FILE):
            write_marker(fs, checkpoint.path)
            model = os.path.join(checkpoint.logs, LOCK_NAME)
            copy_mode_and_owner(fs, checkpoint.real(METADATA_FILE), model)
    return Converted(
        path=checkpoint.path,
        files=sum(map(len, by_partition.values())),
        bytes=size,
        partitions=len(by_partition),
    )


def _take_over(checkpoint: Checkpoint, lock: CheckpointLock, name: str, files: list[str]) -> int:
    """Write the files of a partition as records, durably, oldest first."""
    fs, directory = checkpoint.fs, os.path.join(checkpoint.logs, name)
    with lock.directories():
        create(fs, directory)
    size = 0
    with lock.partition(name):
        partition = CheckpointPartition(fs, directory)
        known = {key for key, _ in partition.live()}  # their records are newer than the files
        new = [file for file in files if address_of(file).key not in known]
        # In the order in which Spark wrote the files, as if they had always been records.
        new.sort(key=lambda file: (fs.mtime_ms(checkpoint.real(file)), file))

        def records() -> Iterator[Record]:
            nonlocal size
            for file in new:
                real = checkpoint.real(file)
                data = read_bytes(fs, real)
                size += len(data)
                yield Record(address_of(file).key, data, fs.mtime_ms(real))

        append(partition, records())
        # Records that an interrupted call wrote must be durable, too.
        for segment in partition.segments:
            with fs.open(partition.path(segment)) as log:
                log.sync()
        fs.sync_dir(directory)
    return size


def _remove(checkpoint: Checkpoint, files: list[str]) -> None:
    """Remove files that are stored as records now, after the Hadoop checksums of these files."""
    fs, names = checkpoint.fs, checkpoint.files()
    # The checksum first: Hadoop verifies a file that has one, and a crash must not leave the
    # checksum of another file's content.
    for file in files:
        for path in (hadoop_name(file), file):
            if path in names:
                fs.unlink(checkpoint.real(path))
    for directory in sorted({os.path.dirname(checkpoint.real(file)) for file in files}):
        fs.sync_dir(directory)


def export(
    path: Path,
    *,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Converted:
    """Write the records of a log-backed checkpoint back as files, and remove its log dir or runs.

    After the export the query runs with Spark's own checkpoint manager. The query must be stopped
    during the export.

    Args:
        path: The checkpoint: a local path, or a URL.
        storage_options: Options of fsspec for a checkpoint in a bucket.
        fs: The file system of the checkpoint; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: There is no checkpoint.
        LogLockedError: The query is running.
        DataCorruptionError: A record is damaged.
        StorageUnavailableError: The disk fails. Call the function again.

    Cost:
        Reads every live record once, and writes it with a sync; in a bucket with a PUT.

    Examples:
        >>> from sparklog.checkpoint import export, history, import_
        >>> imported = import_("checkpoint")
        >>> exported = export("checkpoint")
        >>> history("checkpoint").is_log_backed
        False
    """
    checkpoint = Checkpoint.open(path, fs, storage_options=storage_options or {})
    if checkpoint.fs is not fs:
        complete_in_runs(checkpoint, storage_options, fs=fs, clock=clock)
        files, size = export_from_runs(checkpoint, clock)
        return Converted(path=checkpoint.path, files=files, bytes=size, partitions=0)
    complete(checkpoint.path, fs=fs, clock=clock)
    files = size = 0
    if not checkpoint.is_log_backed:
        return Converted(path=checkpoint.path, files=0, bytes=0, partitions=0)
    with keep_stopped(checkpoint, "export it"):
        checkpoint = Checkpoint.open(path, fs)
        records = [file for file in checkpoint.paths() if checkpoint.stat(file).is_record]
        for file in records:
            size += _write_back(checkpoint, file)
        for directory in sorted({os.path.dirname(checkpoint.real(file)) for file in records}):
            fs.sync_dir(directory)
        if has_marker(fs, checkpoint.path):  # without a record, which would have replaced it
            fs.unlink(checkpoint.real(METADATA_FILE))
            fs.sync_dir(checkpoint.path)
        files, partitions = len(records), len(checkpoint.partitions)
        remove_log_dir(fs, checkpoint.path, checkpoint.logs)
    return Converted(path=checkpoint.path, files=files, bytes=size, partitions=partitions)


def _write_back(checkpoint: Checkpoint, file: str) -> int:
    """Write a record as the file that it represents. The new directory entry is not synced yet."""
    fs, real = checkpoint.fs, checkpoint.real(file)
    data, stat = checkpoint.read(file), checkpoint.stat(file)
    _make_directories(fs, checkpoint.path, os.path.dirname(file))
    # An old checksum of this name would make Hadoop reject the new file.
    stale = hadoop_name(file)
    if stale in checkpoint.files():
        fs.unlink(checkpoint.real(stale))
    # A crash must not leave a half-written file under a name that a query reads. A name that starts
    # with a dot is not listed as part of the checkpoint, and a truncation drops `*.tmp`.
    directory, name = os.path.split(real)
    hidden = os.path.join(directory, f".{name}.tmp")
    output = FileWriter(fs, hidden)
    output.write(data)
    output.close()
    fs.set_mtime_ms(hidden, stat.mtime_ms)  # `import_` orders records by it
    copy_mode_and_owner(fs, hidden, checkpoint.locate(file)[0])
    fs.rename(hidden, real)
    return len(data)


def _make_directories(fs: FileSystem, root: str, directory: str) -> None:
    made = root
    for name in filter(None, directory.split("/")):
        parent, made = made, os.path.join(made, name)
        if not fs.is_dir(made):
            fs.mkdir(made)
            copy_mode_and_owner(fs, made, parent)
            fs.sync_dir(parent)
