"""Move damaged files to quarantine: plain files in the same log dir.

A broker treats every directory of a log dir as a partition. The broker fails to start if it can't
parse the name, loads a directory that ends in -stray, and deletes a directory that ends in -delete.
Plain files are ignored. So `t-0/notes.txt` becomes `sparklog-quarantine-<time>-t-0-notes.txt`.
Quarantined files are never deleted.
"""

import datetime
import os
from typing import Final

from sparklog.fs import FileSystem

QUARANTINE_PREFIX: Final = "sparklog-quarantine-"
"""The prefix of quarantined files. They are plain files because a broker ignores these."""

_NAME_MAX: Final = 255
_COPY_BYTES: Final = 4 << 20


class QuarantinedFiles:
    """Moves files to quarantine, during a repair or an opening.

    Args:
        now_ms: The time in the names of the quarantined files.
        done: Gets a line for each file that was moved.
    """

    def __init__(self, fs: FileSystem, now_ms: int, done: list[str]) -> None:
        self._fs, self._done = fs, done
        now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
        self._prefix = f"{QUARANTINE_PREFIX}{now:%Y%m%dT%H%M%SZ}-"

    def move(self, path: str, log_dir: str) -> bool:
        """Move a file to quarantine, durably. Return False if the file does not exist."""
        target = self._target(path, log_dir)
        try:
            self._fs.rename(path, target)
        except FileNotFoundError:
            return False
        self._fs.sync_dir(log_dir)
        self._fs.sync_dir(os.path.dirname(path))
        self._done.append(f"moved {path} to {target}")
        return True

    def keep(self, path: str, log_dir: str) -> None:
        """Hard-link a file into quarantine, durably; the original stays."""
        target = self._target(path, log_dir)
        self._fs.link(path, target)
        self._fs.sync_dir(log_dir)
        self._done.append(f"kept {path} as {target}")

    def move_tail(self, path: str, log_dir: str, position: int) -> None:
        """Move the bytes of a file from `position` on; they are synced before they are cut off."""
        target = self._target(path, log_dir)
        with self._fs.open(path, write=True) as file:
            size = file.size()
            if size <= position:
                return
            with self._fs.open(target, create=True) as copy:
                for at in range(position, size, _COPY_BYTES):
                    piece = file.pread(min(_COPY_BYTES, size - at), at)
                    copy.pwrite(piece, at - position)
                copy.sync()
            self._fs.sync_dir(log_dir)
            file.truncate(position)
            file.sync()
        self._done.append(f"moved bytes [{position}, {size}) of {path} to {target}")

    def _target(self, path: str, log_dir: str) -> str:
        name = os.path.relpath(path, log_dir).replace(os.sep, "-")
        # Leave room for the suffix of up to four characters. The end of the path identifies the
        # file better than its beginning.
        room = _NAME_MAX - len(self._prefix) - 4
        name = name[-room:]
        for number in range(1000):
            suffix = f"-{number}" if number else ""
            target = os.path.join(log_dir, f"{self._prefix}{name}{suffix}")
            if not self._fs.exists(target):
                break
        return target
