"""A trial write to each log dir, once a minute, by the service that leads.

The probe detects a disk that fails, is full or was mounted read-only before a commit does, even
while there are no commits. A broker notices such a disk when LogManager writes its checkpoints once
a minute (log.flush.offset.checkpoint.interval.ms; LogDirFailureChannel).
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
_DATA: Final = bytes(4096)  # a block, which a full disk cannot allocate
_LOGGER: Final = logging.getLogger("sparklog.service")


class DiskProbe:
    """Probes log dirs, and remembers failures.

    Args:
        absent: Returns {number of a log dir: reason} of missing log dirs. The probe creates no file
            there, because the directory may be the mount point of a missing disk.
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
        """Probe every log dir if the last probe is a minute old.

        Cost: a new file, a fsync and an unlink per log dir.
        """
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _EVERY_MS
        absent = self._absent()
        for number, directory in enumerate(self._directories):
            error = absent.get(number) or self._try(directory)
            self._meters.record_probe(directory, failed=bool(error))
            if error and directory not in self._failed:
                _LOGGER.error(
                    "%s: a trial write failed, so commits will fail, too: %s", directory, error
                )
            elif not error and directory in self._failed:
                _LOGGER.info("%s: a trial write succeeded again", directory)
            self._failed.pop(directory, None)
            if error:
                self._failed[directory] = error

    def _try(self, directory: str) -> str:
        path = joined(directory, NAME)
        try:
            with self._fs.open(path, create=True) as file:
                file.pwrite(_DATA, 0)
                file.sync()  # a write to the page cache succeeds even on a failed disk
            self._fs.unlink(path)
        except (StorageUnavailableError, FileNotFoundError) as error:
            with contextlib.suppress(StorageUnavailableError, FileNotFoundError):
                self._fs.unlink(path)
            return str(error)
        return ""
