"""The leases of a log dir: locks on `sparklog.service` and `sparklog.endpoint` in the first one.

One service at a time works on a log, one of its endpoints at a time coordinates consumer groups.

Byte 0 is the lease; byte 1 is locked by who asks the holder for it, one at a time. The file says
who holds it, and when that one was last at work (`beat_ms`). A kernel gives the lock
back when its holder dies, and not before: a stalled holder keeps it. Only where locks break (a
copied disk, a machine image that was resumed) can two believe in it; so the holder looks, before
every step, whether the file is still its own.
"""

import json
import os
import socket
import uuid
from collections.abc import Mapping

from sparklog.clock import Clock, monotonic_ms
from sparklog.fs import FileSystem, LockFile
from sparklog.logdir.segment_files import joined
from sparklog.storage.lease import LeaseLostError

NAME = "sparklog.service"
ENDPOINT_NAME = "sparklog.endpoint"
SIZE = 1024
"""Bytes, from the first on, that say who holds it."""
_BEAT_MS = 20_000


class ServiceLease:
    """A `sparklog.storage.lease.UpkeepLease` by a lock file.

    `what` it is for, in words; `said`: what its holder says of itself to the others.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        home: str,
        *,
        name: str = NAME,
        what: str = "service",
        said: Mapping[str, object] | None = None,
    ) -> None:
        self._fs, self._clock, self.path = fs, clock, joined(home, name)
        self._what, self._said = what, dict(said or {})
        self._token = uuid.uuid4().hex
        self._file: LockFile | None = None
        self._asking: LockFile | None = None
        self.lends: bool | None = None
        """Whether we give it back when asked; the others read it."""
        self._since_ms, self._beat_at = 0, 0.0

    @property
    def held(self) -> bool:
        """Whether it was ours when we last looked."""
        return self._file is not None

    def acquire(self) -> bool:
        """Try to get it; False if somebody else has it. Raises StorageUnavailableError."""
        if self._file is not None:
            return True
        file = self._fs.open_lock(self.path)
        if not file.try_lock(0, 1, exclusive=True) or not file.is_current():
            file.close()
            return False
        self._token = uuid.uuid4().hex  # what it told when it held this before is over
        self._since_ms = self._clock()
        self._file = file
        try:
            self._beat()
        except BaseException:
            self.release()
            raise
        return True

    def heartbeat(self) -> None:
        """Say that the holder is at work, for those who look. Asked every second.

        Cost: a small write three times a minute, which nobody waits for.
        """
        if self._file is not None and monotonic_ms() - self._beat_at >= _BEAT_MS:
            self._beat()

    def _beat(self) -> None:
        """Write who holds it. What changes has as many digits each time: no look finds it torn."""
        assert self._file is not None
        mine = {
            **self._said,
            **({} if self.lends is None else {"lends": self.lends}),
            "token": self._token,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since_ms": self._since_ms,
            "beat_ms": self._clock(),
        }
        raw = json.dumps(mine).encode()
        assert len(raw) <= SIZE  # host names have 253 characters at most
        self._file.pwrite(raw.ljust(SIZE), 0)
        self._beat_at = monotonic_ms()

    def check(self) -> None:
        """Raise LeaseLostError unless it is still ours. Cost: a stat and a small read.

        So it is while we lend it and somebody asks: then it stays ours until it is released.
        """
        file = self._file
        if file is None:
            raise LeaseLostError(f"{self.path}: this {self._what} has no lease")
        if not file.is_current() or self.holder().get("token") != self._token:
            self.release()
            raise LeaseLostError(f"{self.path}: {self.describe()} has taken over; standing back")
        if self.lends and self.is_requested():
            raise LeaseLostError(f"{self.path}: another process asks for it; standing back")

    # --- asking for it -------------------------------------------------------------------------

    def request(self) -> None:
        """Hold the lock of who asks, as soon as nobody else does."""
        if self._asking is not None and self._asking.is_current():
            return
        self.withdraw()
        file = self._fs.open_lock(self.path)
        if file.try_lock(1, 1, exclusive=True) and file.is_current():
            self._asking = file
        else:
            file.close()

    def withdraw(self) -> None:
        """Ask no more. Idempotent."""
        file, self._asking = self._asking, None
        if file is not None:
            file.close()

    def is_requested(self) -> bool:
        """Tell whether somebody else asks for it. Cost: a look at a lock."""
        return self._asking is None and self._fs.is_locked(self.path, 1, 1)

    def holder(self) -> dict[str, object]:
        """Who holds it or held it last; nothing if nobody ever did."""
        try:
            with self._fs.open(self.path) as file:
                found = json.loads(file.pread(SIZE, 0) or b"{}")
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def describe(self) -> str:
        """The holder in words."""
        who = self.holder()
        return f"the {self._what} of process {who.get('pid', '?')} on host {who.get('host', '?')}"

    def release(self) -> None:
        """Give it back. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
