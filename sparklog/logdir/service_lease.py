"""The leases of a log: locks on `sparklog.service` and `sparklog.endpoint` in the first log dir.

At any time, a single service works on a log, and a single endpoint of the log coordinates consumer
groups.

Byte 0 is the lease. Byte 1 is locked by a process that requests the lease from the holder, a single
process at a time. The file describes the holder, with its last heartbeat (`beat_ms`). The kernel
releases the lock when its holder dies, and not before, so a stalled holder still has it. Only if
locks break (a copied disk, a resumed machine image) can two processes both act as holder; therefore
the holder checks before every step that the file still names this holder.
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
"""The size in bytes of the holder's description, at the start of the file."""
BEAT_MS = 20_000


class ServiceLease:
    """A `sparklog.storage.lease.UpkeepLease` by a lock file.

    `what`: the purpose, for messages; `said`: the holder's published description.
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
        """Whether this process, as the holder, releases the lease on request.

        Other processes read it.
        """
        self._since_ms, self._beat_at = 0, 0.0

    @property
    def held(self) -> bool:
        """Whether this process had the lease at the last check."""
        return self._file is not None

    def acquire(self) -> bool:
        """Try to acquire the lease; return True on success. Raises: StorageUnavailableError."""
        if self._file is not None:
            return True
        file = self._fs.open_lock(self.path)
        if not file.try_lock(0, 1, exclusive=True) or not file.is_current():
            file.close()
            return False
        self._token = uuid.uuid4().hex  # invalidates data published by an earlier holder
        self._since_ms = self._clock()
        self._file = file
        try:
            self._beat()
        except BaseException:
            self.release()
            raise
        return True

    def heartbeat(self) -> None:
        """Write a heartbeat for monitoring, if due. Called every second.

        Cost: a small write three times per minute.
        """
        if self._file is not None and monotonic_ms() - self._beat_at >= BEAT_MS:
            self._beat()

    def _beat(self) -> None:
        """Write the holder. Varying fields have a fixed length, so that no read is torn."""
        assert self._file is not None
        fields = {
            **self._said,
            **({} if self.lends is None else {"lends": self.lends}),
            "token": self._token,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since_ms": self._since_ms,
            "beat_ms": self._clock(),
        }
        raw = json.dumps(fields).encode()
        assert len(raw) <= SIZE  # host names have 253 characters at most
        self._file.pwrite(raw.ljust(SIZE), 0)
        self._beat_at = monotonic_ms()

    def check(self) -> None:
        """Raise LeaseLostError unless this process still has the lease.

        Cost: a stat and a small read. Also raises if the lease `lends` and is requested; the lease
        then stays until its release.
        """
        file = self._file
        if file is None:
            raise LeaseLostError(f"{self.path}: this {self._what} has no lease")
        if not file.is_current() or self.holder().get("token") != self._token:
            self.release()
            raise LeaseLostError(f"{self.path}: {self.describe()} has taken over; standing back")
        if self.lends and self.is_requested():
            raise LeaseLostError(f"{self.path}: another process asks for it; standing back")

    # --- requests ------------------------------------------------------------------------------

    def request(self) -> None:
        """Lock the byte of requests, as soon as no other process requests the lease."""
        if self._asking is not None and self._asking.is_current():
            return
        self.withdraw()
        file = self._fs.open_lock(self.path)
        if file.try_lock(1, 1, exclusive=True) and file.is_current():
            self._asking = file
        else:
            file.close()

    def withdraw(self) -> None:
        """Withdraw the request. Idempotent."""
        file, self._asking = self._asking, None
        if file is not None:
            file.close()

    def is_requested(self) -> bool:
        """Return True if another process requests the lease. Cost: a query of a lock."""
        return self._asking is None and self._fs.is_locked(self.path, 1, 1)

    def holder(self) -> dict[str, object]:
        """The current or last holder; empty if there was none."""
        try:
            with self._fs.open(self.path) as file:
                found = json.loads(file.pread(SIZE, 0) or b"{}")
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def describe(self) -> str:
        """A description of the holder, for messages."""
        holder = self.holder()
        pid, host = holder.get("pid", "?"), holder.get("host", "?")
        return f"the {self._what} of process {pid} on host {host}"

    def release(self) -> None:
        """Release the lease. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
