"""Opens the read view for a source's options: a log dir with its tier, or an archive."""

from sparklog.fs import LOCAL, FileSystem
from sparklog.source.options import SourceOptions
from sparklog.storage.view import View
from sparklog.tiered.opening import read_side


def view_of(options: SourceOptions, fs: FileSystem = LOCAL) -> tuple[FileSystem, View]:
    """Return the file system of the log's small files, and a view on it.

    Raises: InvalidRequestError if there is no log; StorageUnavailableError for an archive.
    """
    reads = read_side(
        options.path or "",
        options=options.remote,
        storage_options=options.storage,
        fs=fs,
        until=options.until,
    )
    view = reads.open_view()
    if options.streaming:
        view.set_following()
    return reads.fs, view
