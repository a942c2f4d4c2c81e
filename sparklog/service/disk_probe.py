"""A trial write in each log dir, once a minute, by the service that works on the log.

A disk that fails, is full or was mounted read-only is so seen before a commit meets it, and also
where nobody commits. Source: the rhythm in which Kafka's LogManager writes its checkpoints, by
which a broker notices (log.flush.offset.checkpoint.interval.ms); LogDirFailureChannel.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sparklog.errors import StorageUnavailableError
from sparklog.fs import FileSystem
from sparklog.logdir.segment_files import joined
from sparklog.service.metrics.service_meters import WorkMeters

NAME: Final = "sparklog.probe"
_EVERY_MS: Final = 60_000
_DATA: Final = bytes(4096)  # a block: a full disk has none
_LOGGER: Final = logging.getLogger("sparklog.service")


class DiskProbe:
    """Tries the log dirs `directories`, and keeps which failed.

    `absent` gives {number: why} of those that aren't there, where nothing is to be made.
    """

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[str],
        meters: WorkMeters,
        *,
        absent: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        self._fs, self._directories, self._meters = fs, directories, meters
        self._absent = absent
        self._next_ms = 0
        self._failed: dict[str, str] = {}

    def probe_if_due(self, now_ms: int) -> None:
        """Try every log dir if a minute is over. Cost: a file, an fsync and an unlink each."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS
        absent = self._absent()
        for number, directory in enumerate(self._directories):
            error = absent.get(number) or self._try(directory)
            self._meters.tried(directory, failed=bool(error))
            if error and directory not in self._failed:
                _LOGGER.error("%s: a trial write failed (%s): commits will", directory, error)
            elif not error and directory in self._failed:
                _LOGGER.info("%s: can be written again", directory)
            self._failed.pop(directory, None)
            if error:
                self._failed[directory] = error

    def _try(self, directory: str) -> str:
        path = joined(directory, NAME)
        try:
            with self._fs.open(path, create=True) as file:
                file.pwrite(_DATA, 0)
                file.sync()
            self._fs.unlink(path)
        except (StorageUnavailableError, FileNotFoundError) as error:
            with contextlib.suppress(StorageUnavailableError, FileNotFoundError):
                self._fs.unlink(path)
            return str(error)
        return ""
