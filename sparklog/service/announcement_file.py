"""`sparklog.announced` in the first log dir: the topics whose first deletion was announced."""

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
    """`sparklog.log.deletion_announcements.AnnouncementStore` as a file."""

    def __init__(self, fs: FileSystem, home: str) -> None:
        self._fs, self._path = fs, joined(home, NAME)

    def read(self) -> Announced:
        """Return what is noted."""
        with contextlib.suppress(FileNotFoundError, ValueError, StorageUnavailableError):
            found: Any = json.loads(read_bytes(self._fs, self._path))
            if isinstance(found, dict) and all(isinstance(v, dict) for v in found.values()):
                return found
        return {}

    def write(self, found: Announced) -> None:
        """Note it."""
        try:
            write_durably(self._fs, self._path, json.dumps(found).encode() + b"\n")
        except StorageUnavailableError as error:
            _LOGGER.warning("not noted what was announced, so only this service knows: %s", error)
