"""The leases of a log dir: locks on `sparklog.service` and `sparklog.endpoint` in the first one.

One service at a time works on a log, one of its endpoints at a time coordinates consumer groups.

The file says who holds it. A kernel gives the lock back when its holder dies, and not before: a
stalled holder keeps it. Only where locks break (a copied disk, a machine image that was resumed)
can two believe in it; so the holder looks, before every step, whether the file is still its own.
"""

import json
import os
import socket
import uuid
from collections.abc import Mapping

from sparklog.clock import Clock
from sparklog.fs import FileSystem, LockFile
from sparklog.logdir.segment_files import joined
from sparklog.storage.lease import LeaseLostError

NAME = "sparklog.service"
ENDPOINT_NAME = "sparklog.endpoint"
_SIZE = 1024


class ServiceLease:
    """A `sparklog.storage.lease.Lease` by a lock file.

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
        mine = {
            **self._said,
            "token": self._token,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since_ms": self._clock(),
        }
        raw = json.dumps(mine).encode()
        assert len(raw) <= _SIZE  # host names have 253 characters at most
        file.pwrite(raw.ljust(_SIZE), 0)
        self._file = file
        return True

    def check(self) -> None:
        """Raise LeaseLostError unless it is still ours. Cost: a stat and a small read."""
        file = self._file
        if file is None:
            raise LeaseLostError(f"{self.path}: this {self._what} has no lease")
        if not file.is_current() or self.holder().get("token") != self._token:
            self.release()
            raise LeaseLostError(f"{self.path}: {self.describe()} has taken over; standing back")

    def holder(self) -> dict[str, object]:
        """Who holds it or held it last; nothing if nobody ever did."""
        try:
            with self._fs.open(self.path) as file:
                found = json.loads(file.pread(_SIZE, 0) or b"{}")
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
