"""The look at a log that driver and executors share: a log dir with its tier, or an archive."""

from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.paths import split_path
from sparklog.logdir.view import View
from sparklog.source.options import SourceOptions
from sparklog.tiered.reading.opening import reading


def view_of(options: SourceOptions, fs: FileSystem = LOCAL) -> tuple[FileSystem, View]:
    """Return the file system through which the log is read, and a view on it.

    Raises: InvalidRequestError if there is no log; StorageUnavailableError for an archive.
    """
    path = options.path or ""
    reads = reading(path, options=options.remote, storage_options=options.storage, fs=fs)
    if options.streaming:
        reads.be_patient()
    return reads, View(reads, split_path(path), until=options.until)
