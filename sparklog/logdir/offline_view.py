"""The partitions of a log that can't be used, for those who watch it."""

from sparklog.errors import DataCorruptionError
from sparklog.fs import FileSystem
from sparklog.logdir.lock import offline_from, peek
from sparklog.logdir.view import View


def offline_partitions(
    fs: FileSystem, view: View
) -> dict[tuple[str, int], DataCorruptionError]:
    """Return what using a partition raises, of those that are missing or damaged. Lock-free.

    What is missing shows at once; what recovery found, as long as the machine runs.
    """
    page = peek(fs, view.home)
    found = {} if page is None else offline_from(page.body)
    topics = view.topics()
    known = {(name, p) for name, info in topics.items() for p in info.dirs}
    return {key: error for key, error in found.items() if key in known} | view.offline()
