"""`DiskBlocks`: blocks of remote objects as files; the least recently used are evicted.

A block is a file `<32 hex digits of its cache key>-<number>.block`: a header with magic, CRC-32C
and the name, then the bytes. Files are written under another name and renamed, so several processes
may share a directory, and may be killed. Each process limits the files that it finds: together they
may exceed `bytes_max` by the bytes written since their last sweeps, a sixteenth each.
Methods never raise errors: a block that can't be written or is damaged counts as not cached.
"""

import contextlib
import hashlib
import os
import struct
import uuid
from typing import Final

import crc32c

from sparklog.clock import Clock
from sparklog.errors import StorageUnavailableError
from sparklog.fs import FileSystem, make_directories, read_bytes

_HEADER: Final = struct.Struct(">8sIIQI")  # magic, crc32c of all after it, name, number, data
_MAGIC: Final = b"sparkblk"
_CRC_AT: Final = 12  # first byte that the CRC covers
_SUFFIX: Final = ".block"
_TEMPORARY: Final = ".tmp"
_STALE_MS: Final = 10 * 60_000  # age at which a temporary file has no writer any more
_FULL_PAUSE_MS: Final = 30_000  # pause after a failed write
_REFUSED: Final = (StorageUnavailableError, FileNotFoundError, FileExistsError)


class DiskBlocks:
    """Blocks in a directory that threads and processes share."""

    def __init__(self, directory: str, bytes_max: int, fs: FileSystem, clock: Clock) -> None:
        self.directory, self._bytes_max = directory, bytes_max
        self._fs, self._clock = fs, clock
        self._held_bytes = self._written_bytes = 0  # at the last sweep, and written since then
        self._closed_until_ms = 0
        with contextlib.suppress(*_REFUSED):
            make_directories(fs, directory)
        self._sweep()

    def load(self, name: str, number: int) -> bytes | None:
        """Return a block, or None for a missing or damaged block."""
        path = self._path(name, number)
        try:
            raw = read_bytes(self._fs, path)
        except _REFUSED:
            return None
        data = _unpacked(raw, name, number)
        if data is None:
            self.remove(name, number)
            return None
        with contextlib.suppress(*_REFUSED):
            self._fs.set_mtime_ms(path, self._clock())  # records its last use
        return data

    def save(self, name: str, number: int, data: bytes) -> None:
        """Write a block, if there is space."""
        raw = _packed(name, number, data)
        if len(raw) > self._bytes_max or self._clock() < self._closed_until_ms:
            return
        path = self._path(name, number)
        temporary = f"{path}.{os.getpid()}-{uuid.uuid4().hex[:8]}{_TEMPORARY}"
        try:
            with self._fs.open(temporary, create=True) as file:
                file.pwrite(raw, 0)
            self._fs.set_mtime_ms(temporary, self._clock())
            # The blocks are not synced. After a power cut a block may be torn, which its checksum
            # shows.
            self._fs.rename(temporary, path)
        except _REFUSED:
            self._closed_until_ms = self._clock() + _FULL_PAUSE_MS
            self._unlink(temporary)
            return
        self._written_bytes += len(raw)
        full = self._held_bytes + self._written_bytes > self._bytes_max
        if full or self._written_bytes > self._bytes_max // 16:
            self._sweep()

    def remove(self, name: str, number: int) -> None:
        self._unlink(self._path(name, number))

    def _path(self, name: str, number: int) -> str:
        digest = hashlib.sha256(name.encode()).hexdigest()[:32]
        return f"{self.directory}/{digest}-{number}{_SUFFIX}"

    def _unlink(self, path: str) -> None:
        with contextlib.suppress(*_REFUSED):
            self._fs.unlink(path)

    def _sweep(self) -> None:
        """Delete the oldest blocks until the limit is met, and old temporary files."""
        files: list[tuple[int, int, str]] = []
        stale_ms = self._clock() - _STALE_MS
        with contextlib.suppress(*_REFUSED):
            for entry in self._fs.listdir(self.directory):
                path = f"{self.directory}/{entry}"
                with contextlib.suppress(*_REFUSED):  # another process has deleted it
                    time_ms = self._fs.mtime_ms(path)
                    if entry.endswith(_SUFFIX):
                        files.append((time_ms, self._fs.size(path), path))
                    elif entry.endswith(_TEMPORARY) and time_ms < stale_ms:
                        self._fs.unlink(path)
        held = sum(size for _, size, _ in files)
        if held > self._bytes_max:
            room = self._bytes_max - self._bytes_max // 16  # else each write would sweep
            for _, size, path in sorted(files):
                if held <= room:
                    break
                self._unlink(path)
                held -= size
        self._held_bytes, self._written_bytes = held, 0


def _packed(name: str, number: int, data: bytes) -> bytes:
    encoded = name.encode()
    header = _HEADER.pack(_MAGIC, 0, len(encoded), number, len(data))
    crc = crc32c.crc32c(data, crc32c.crc32c(encoded, crc32c.crc32c(header[_CRC_AT:])))
    return _HEADER.pack(_MAGIC, crc, len(encoded), number, len(data)) + encoded + data


def _unpacked(raw: bytes, name: str, number: int) -> bytes | None:
    """Return a file's data, or None for a damaged file or another block."""
    encoded = name.encode()
    begins = _HEADER.size + len(encoded)
    if len(raw) < begins:
        return None
    magic, crc, name_bytes, found, data_bytes = _HEADER.unpack_from(raw)
    as_named = (name_bytes, found) == (len(encoded), number) and (
        raw[_HEADER.size : begins] == encoded
    )
    # The name is compared too: file names contain only a part of its hash.
    if magic != _MAGIC or not as_named or len(raw) != begins + data_bytes:
        return None
    if crc32c.crc32c(memoryview(raw)[_CRC_AT:]) != crc:
        return None
    return raw[begins:]
