"""`sparklog.lock`: the write lock, and a page that describes the step of a dead holder.

Byte 0 is the write lock (exclusive, for one commit). Byte 1 is the session lock (shared, while a
log is open for writing). Byte 2 + n is locked (shared) by each session that failed in its last
write to log dir number n: a mark that needs no disk and disappears with the process. The first page
describes the state of the log:

      at   len  field
       0     4  magic "SPLK"
       4     2  version of this page (1)
       6     1  state: 0 IDLE, 1 BUSY (the body contains the intent), 2 FULL (recover everything)
       8     4  pid of the last holder
      12     8  generation: increases with every change of the log, and invalidates caches
      20    40  boot id, ASCII, zero padded
      60     8  device of this file      68  8  inode of this file
      76     8  ledger end: the offset after the last committed ledger record
      84     8  era: the generation of the last FULL recovery, which may have cut the ledger
      92     4  length of the body        96  4  CRC-32C of the body
     100     4  CRC-32C of bytes 0..99
    4096     -  body, JSON, written before the header: the intent (BUSY), and in any state
                the damaged and missing partitions; see `sparklog.logdir.intent`

The page is never synced, because it only matters within a boot. If a page is of another boot,
device or inode (a copied directory), the log is recovered from its files. Big-endian. The header is
far smaller than 512 bytes: a killed process may leave a longer write incomplete, but never a short
one (PROTOCOL, H4).
"""

import enum
import logging
import os
import struct
from dataclasses import dataclass, field
from typing import Final

import crc32c

from sparklog.clock import attempts
from sparklog.errors import (
    LogLockedError,
    LogReplacedError,
    SparklogError,
)
from sparklog.fs import File, FileSystem, LockFile
from sparklog.logdir.intent import Intent, Offline, decode_body, encode_body

LOCK_NAME: Final = "sparklog.lock"
BODY_AT: Final = 4096
_LOGGER: Final = logging.getLogger(__name__)
_PAGE: Final = struct.Struct(">4sHBxIQ40sQQQQII")
_CRC: Final = struct.Struct(">I")
assert _PAGE.size == 100  # a layout slip fails at import, not on disk
_WRITE, _SESSION, _FAILING = 0, 1, 2
_LEDGER_DIR: Final = "__sparklog_commits-0"  # sparklog.logdir.ledger, which is above this module


class State(enum.IntEnum):
    """The state of the log, according to the lock file's page.

    IDLE: no step is in progress. BUSY: a step is in progress, and the page describes it. FULL: all
    partitions must be recovered.
    """

    IDLE = 0
    BUSY = 1
    FULL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The lock file's page, without the fields that identify the file.

    Attributes:
        state: The state of the log.
        pid: The process id of the last holder of the lock.
        generation: A number that increases with every change of the log.
        ledger_end: The offset after the last committed ledger record.
        era: The generation of the last FULL recovery.
        intent: The step in progress, if the state is BUSY.
        offline: The damaged and missing partitions, with their errors.
    """

    state: State
    pid: int
    generation: int
    ledger_end: int
    era: int
    intent: Intent | None = None
    offline: Offline = field(default_factory=dict)


class LogLock:
    """The lock file of a log, opened by this process: the locks and the page.

    Not thread-safe: the session serializes its threads.
    """

    def __init__(self, fs: FileSystem, directory: str, *, timeout_ms: int) -> None:
        self._fs, self._path = fs, os.path.join(directory, LOCK_NAME)
        self._timeout_ms = timeout_ms
        self._file: LockFile = fs.open_lock(self._path)
        self._boot = fs.boot_id()
        self._pid = os.getpid()
        self.replaced = False
        """Whether the path now names another file than when the log was opened: see `acquire`."""

    def join(self) -> None:
        """Take the session lock, shared. Waits while the last session closes the log."""
        # The last session holds the session lock exclusively while it closes the log: see
        # `is_last`.
        for _ in attempts(self._timeout_ms):
            if self._file.try_lock(_SESSION, 1, exclusive=False):
                if self._file.is_current():
                    return
                self._open_again()
        raise LogLockedError(f"{self._path}: another process is closing this log; try again")

    def is_current(self) -> bool:
        """Return True if the path still names the locked file. Cost: a stat."""
        return self._file.is_current()

    def identity(self) -> tuple[int, int]:
        """Return (device, inode) of the locked file."""
        return self._file.identity()

    def is_last(self) -> bool:
        """Return True if no other session has the log open for writing (byte 1 is not shared)."""
        if not self._file.try_lock(_SESSION, 1, exclusive=True):
            return False
        # Back to the shared lock, without a gap in which another session could see itself as the
        # last.
        self._file.try_lock(_SESSION, 1, exclusive=False)
        return True

    def check_process(self) -> None:
        """Raise SparklogError in a forked child, because the parent process has the locks."""
        if os.getpid() != self._pid:
            raise SparklogError(
                f"{self._path}: this log was opened before a fork; open it again in this process"
            )

    def acquire(self) -> None:
        """Take the write lock of the file that the path names now.

        Sets `replaced` if that is another file than when the log was opened. No file is created in
        an empty directory, which may be a mount point. Cost: a stat and a lock.

        Raises:
            LogLockedError: Another process holds the lock for too long; the message has its pid.
            LogReplacedError: The directory no longer contains a log.
        """
        for _ in attempts(self._timeout_ms):
            if self._file.try_lock(_WRITE, 1, exclusive=True):
                if self._file.is_current():
                    return
                self.check_exists()
                self._open_again()  # a holder of the new file would not see our lock
                self.replaced = True
                self.join()
        page = self.read()
        holder = f"process {page.pid}" if page is not None else "another process"
        raise LogLockedError(
            f"{self._path}: {holder} has held the write lock for {self._timeout_ms} ms; "
            "wait for it to finish, or stop that process: its half-done commit is then undone"
        )

    def release(self) -> None:
        self._file.unlock(_WRITE, 1)

    def mark(self, number: int, *, failing: bool) -> None:
        """Show to all processes whether writing to log dir `number` fails; see `is_failing`."""
        if failing:
            self._file.try_lock(_FAILING + number, 1, exclusive=False)
        else:
            self._file.unlock(_FAILING + number, 1)

    def close(self) -> None:
        """Release all locks."""
        self._file.close()

    def read(self) -> Page | None:
        """Return the page, or None if it is damaged, of another boot, or of another file."""
        return _read(self._file, self._path, self._boot, self._file.identity())

    def is_foreign(self) -> bool:
        """Return True if the page was written for another file, which was copied or restored here.

        Also returns True if the page is missing or damaged. The number of a device may change
        between boots, so it is compared only within a boot.
        """
        raw = self._file.pread(_PAGE.size + _CRC.size, 0)
        if len(raw) < _PAGE.size + _CRC.size or not _is_sealed(raw):
            return True
        _, _, _, _, _, boot, device, inode, *_ = _PAGE.unpack_from(raw)
        here = self._file.identity()
        same_boot = boot.rstrip(b"\0") == self._boot.encode()
        return bool(inode != here[1] or (same_boot and device != here[0]))

    def write(self, page: Page) -> None:
        """Write the page: first the body, then the header in a single short write."""
        body = encode_body(page.intent, page.offline)
        # The body comes first, so that a header with a valid checksum never describes an old body.
        # A process that is killed in between leaves the old header, whose checksum of the body then
        # fails: the log is recovered from its files.
        if body:
            self._file.pwrite(body, BODY_AT)
        raw = _PAGE.pack(
            b"SPLK",
            1,
            page.state,
            page.pid,
            page.generation,
            self._boot.encode(),
            *self._file.identity(),
            page.ledger_end,
            page.era,
            len(body),
            crc32c.crc32c(body),
        )
        self._file.pwrite(raw + _CRC.pack(crc32c.crc32c(raw)), 0)

    def check_exists(self) -> None:
        """Raise LogReplacedError if the directory has no log any more. Cost: a stat or two."""
        if self._file.is_current():
            return
        directory = os.path.dirname(self._path)
        if not self._fs.is_dir(os.path.join(directory, _LEDGER_DIR)):
            raise LogReplacedError(
                f"{directory} no longer contains a log: it was removed, or its disk was unmounted, "
                "while the log was open; this call wrote no data. Bring it back and try again; "
                "to create a new log there, close this log (end the query) and open it again"
            )

    def _open_again(self) -> None:
        # Open the new file before the old one is closed: if the open fails, the old locks stay.
        fresh = self._fs.open_lock(self._path)
        self._file.close()
        self._file = fresh


def peek(fs: FileSystem, directory: str) -> Page | None:
    """Return the lock file's page without taking a lock.

    Returns None if the page is missing or invalid, as `LogLock.read`. A writer may change the log
    at the same time, so the page may be outdated.
    """
    path = os.path.join(directory, LOCK_NAME)
    try:
        with fs.open(path) as file:
            return _read(file, path, fs.boot_id(), fs.identity(path))
    except FileNotFoundError:
        return None


def is_failing(fs: FileSystem, home: str, number: int) -> bool:
    """Return True if a session, in any process of this host, failed to write to a log dir.

    Takes no lock. `home` is the first log dir, and `number` the index of the log dir.
    """
    return fs.is_locked(os.path.join(home, LOCK_NAME), _FAILING + number, 1)


def _read(file: File, path: str, boot_id: str, identity: tuple[int, int]) -> Page | None:
    raw = file.pread(_PAGE.size + _CRC.size, 0)
    if len(raw) < _PAGE.size + _CRC.size:
        return None
    if not _is_sealed(raw):
        return None
    magic, version, *fields, dev, ino, end, era, length, crc = _PAGE.unpack_from(raw)
    state, pid, generation, boot = fields
    # The page is never synced, so a page of another boot may be older than the files. A page of
    # another device or inode was copied together with the directory.
    if (magic, version, boot.rstrip(b"\0"), dev, ino) != (b"SPLK", 1, boot_id.encode(), *identity):
        return None
    body = file.pread(length, BODY_AT) if length else b""
    if length and (len(body) != length or crc32c.crc32c(body) != crc):
        return None
    try:
        intent, offline = decode_body(body)
    except ValueError as error:
        _LOGGER.warning("%s: %s; the log is recovered from its files alone", path, error)
        return None
    return Page(
        state=State(state),
        pid=pid,
        generation=generation,
        ledger_end=end,
        era=era,
        intent=intent,
        offline=offline,
    )


def _is_sealed(raw: bytes) -> bool:
    return bool(_CRC.unpack_from(raw, _PAGE.size)[0] == crc32c.crc32c(raw[: _PAGE.size]))
