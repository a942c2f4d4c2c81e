"""The leases of a log: locks on `sparklog.service` and `sparklog.endpoint` in the first log dir.

Byte 0 is the lease. Byte 1 is locked by a process that requests the lease from the holder, a single
process at a time. The file describes the holder, with its last heartbeat (`beat_ms`). The kernel
releases the lock when its holder dies, and not before, so a stalled holder still has it. Only if
locks break (a copied disk, a resumed machine image) can two processes both act as holder; therefore
the holder checks before every step that the file still names this holder.

The first KiB is the description. In `sparklog.endpoint` it is followed by the holder's published
data as a checksummed document (see `stored_json`), padded with spaces:

    endpoint: {token: of the holder, ...: the published data}

The document is overwritten in place, so a reader that finds a partly written document reads again.
Data of an earlier holder are ignored, as are data of a holder that died, because the kernel
released its lock.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Final

from sparklog.clock import Clock, attempts, monotonic_ms
from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.fs import FileSystem, LockFile
from sparklog.logdir.segment_files import joined
from sparklog.storage.lease import HomeLease
from sparklog.storage.stored_json import seal, unseal

NAME = "sparklog.service"
ENDPOINT_NAME = "sparklog.endpoint"
SIZE = 1024
"""The size in bytes of the holder's description, at the start of the file."""
BEAT_MS = 20_000
_WRITTEN_WITHIN_MS: Final = 500
_CURE: Final = "its endpoint rewrites it"


class ServiceLease(HomeLease):
    """The service's lease, as a lock on a file.

    Implements `sparklog.storage.lease.UpkeepLease`. For `purpose` and `said` see `HomeLease`;
    `name` is the name of the file in the first log dir.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        home: str,
        *,
        name: str = NAME,
        purpose: str = "service",
        said: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(joined(home, name), purpose, said)
        self._fs, self._clock = fs, clock
        self._file: LockFile | None = None
        self._asking: LockFile | None = None
        self._beat_at = 0.0

    @property
    def held(self) -> bool:
        """Whether this process had the lease at the last check."""
        return self._file is not None

    def acquire(self) -> bool:
        """Try to acquire the lease, without waiting; return True on success."""
        if self._file is not None:
            return True
        file = self._fs.open_lock(self.place)
        # The file may have been replaced between its open and the lock. A lock on the old file
        # excludes no process.
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
        """Write the holder's description to the file. Its last heartbeat is the present time."""
        assert self._file is not None
        # Readers take no lock, so a heartbeat must change the bytes of equal positions only.
        raw = json.dumps({**self._own_description(), "beat_ms": self._clock()}).encode()
        assert len(raw) <= SIZE  # host names have 253 characters at most
        self._file.pwrite(raw.ljust(SIZE), 0)
        self._beat_at = monotonic_ms()

    def _is_current(self) -> bool:
        """Return True if the file still names this holder. Cost: a stat and a small read."""
        assert self._file is not None
        return self._file.is_current() and self.holder().get("token") == self._token

    def _drop(self) -> None:
        self.release()

    # --- requests ------------------------------------------------------------------------------

    def request(self) -> None:
        """Request the lease by locking byte 1 of the file.

        Does not wait: if another process requests the lease already, the call has no effect.
        """
        if self._asking is not None and self._asking.is_current():
            return
        self.withdraw()
        file = self._fs.open_lock(self.place)
        if file.try_lock(1, 1, exclusive=True) and file.is_current():
            self._asking = file
        else:
            file.close()

    def withdraw(self) -> None:
        """Withdraw this process's request for the lease. Idempotent."""
        file, self._asking = self._asking, None
        if file is not None:
            file.close()

    def is_requested(self) -> bool:
        """Return True if another process requests the lease. Cost: a query of a lock."""
        return self._asking is None and self._fs.is_locked(self.place, 1, 1)

    def holder(self) -> dict[str, object]:
        """Return the description of the current or last holder; empty if there was none."""
        try:
            with self._fs.open(self.place) as file:
                found = json.loads(file.pread(SIZE, 0) or b"{}")
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class EndpointLock(ServiceLease):
    """The endpoint's lease, as a lock on a file: a `sparklog.storage.lease.EndpointLease`."""

    def __init__(self, fs: FileSystem, clock: Clock, home: str, said: Mapping[str, object]) -> None:
        super().__init__(fs, clock, home, name=ENDPOINT_NAME, purpose="endpoint", said=said)
        self._told_size = 0

    def publish(self, more: Mapping[str, object]) -> None:
        """Write data that other processes read with `published`, in place of earlier data.

        Raises:
            LeaseLostError: This process does not hold the lease any more.
            StorageUnavailableError: The file can't be written.
        """
        self._check_held()
        file = self._file
        assert file is not None
        raw = seal("endpoint", {"token": self._token, **more})
        # Overwrite all of a longer or an earlier holder's document.
        self._told_size = max(self._told_size, len(raw), file.size() - SIZE)
        file.pwrite(raw.ljust(self._told_size), SIZE)

    def published(self) -> Mapping[str, object] | None:
        """Return the data that the lease's holder has published. Cost: two small reads.

        Returns None if the lease has no holder, and an empty mapping if the holder has not
        published yet.
        """
        for _ in attempts(_WRITTEN_WITHIN_MS):
            if not self._fs.is_locked(self.place, 0, 1):
                return None
            try:
                found = self._document()
            except DataCorruptionError:  # the holder is writing it
                continue
            # The document may be from an earlier holder, if the current holder has not published
            # yet.
            if found.pop("token", None) == self.holder().get("token"):
                return found
            return {}
        return {}

    def _document(self) -> dict[str, object]:
        """Return the published document; empty if there is no document, or an unknown version.

        Raises:
            DataCorruptionError: The document is damaged, or the holder is writing it.
        """
        try:
            with self._fs.open(self.place) as file:
                raw = file.pread(max(0, file.size() - SIZE), SIZE)
        except FileNotFoundError:
            return {}
        try:
            return dict(unseal("endpoint", raw, path=self.place, cure=_CURE)) if raw else {}
        except UnsupportedVersionError:
            return {}
