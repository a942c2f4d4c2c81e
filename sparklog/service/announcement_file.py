"""The file `sparklog.announced`: topics with an announced first deletion by retention."""

import contextlib
import json
import logging
from typing import Any, Final

from sparklog.errors import StorageUnavailableError
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.log.deletion_announcements import Announced
from sparklog.logdir.segment_files import joined

NAME: Final = "sparklog.announced"
_LOGGER: Final = logging.getLogger("sparklog.service")


class AnnouncementFile:
    """An `AnnouncementStore` (`sparklog.log.deletion_announcements`) in the first log dir."""

    def __init__(self, fs: FileSystem, home: str) -> None:
        self._fs, self._path = fs, joined(home, NAME)

    def read(self) -> Announced:
        """Return the announcements; empty if the file is missing or damaged."""
        with contextlib.suppress(FileNotFoundError, ValueError, StorageUnavailableError):
            found: Any = json.loads(read_bytes(self._fs, self._path))
            if isinstance(found, dict) and all(isinstance(v, dict) for v in found.values()):
                return found
        return {}

    def write(self, found: Announced) -> None:
        """Store the announcements. A failure is only logged."""
        # Without the file, a restarted service announces again: deletions come later, never early.
        try:
            write_durably(self._fs, self._path, json.dumps(found).encode() + b"\n")
        except StorageUnavailableError as error:
            _LOGGER.warning(
                "the announcements of first deletions could not be stored; a restarted service "
                "announces them again: %s", error,
            )  # fmt: skip
