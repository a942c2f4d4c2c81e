"""`sparklog.endpoint`: which endpoint of a log dir coordinates groups, and what it tells of them.

The lock is a `ServiceLease`'s, with its first KiB. Behind that lies, as a sealed document (see
`sealed`) padded with spaces, what its holder tells the others:

    endpoint: {token: of the holder, ...: what it tells}

It is overwritten in place: who meets it half written looks again. One of a holder before this one
counts for nothing, and so does one of a holder that died, whose lock the kernel took back.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.clock import Clock, attempts
from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.fs import FileSystem
from sparklog.logdir.service_lease import ENDPOINT_NAME, SIZE, ServiceLease
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.storage.lease import LeaseLostError

_WRITTEN_WITHIN_MS: Final = 500
_CURE: Final = "its endpoint writes it anew"


class EndpointLock(ServiceLease):
    """A `sparklog.storage.lease.EndpointLease` by a lock file."""

    def __init__(self, fs: FileSystem, clock: Clock, home: str, said: Mapping[str, object]) -> None:
        super().__init__(fs, clock, home, name=ENDPOINT_NAME, what="endpoint", said=said)
        self._fs = fs
        self._told_size = 0

    def publish(self, more: Mapping[str, object]) -> None:
        """Let the others read `more`. Raises: LeaseLostError, StorageUnavailableError."""
        file = self._file
        if file is None:
            raise LeaseLostError(f"{self.path}: this endpoint has no lease")
        raw = seal("endpoint", {"token": self._token, **more})
        # What was longer before, or another holder's, is covered whole.
        self._told_size = max(self._told_size, len(raw), file.size() - SIZE)
        file.pwrite(raw.ljust(self._told_size), SIZE)

    def published(self) -> Mapping[str, object] | None:
        """Return what the holder tells; None if nobody holds it. Cost: two small reads."""
        for _ in attempts(_WRITTEN_WITHIN_MS):
            if not self._fs.is_locked(self.path, 0, 1):
                return None
            try:
                found = self._document()
            except DataCorruptionError:  # it is just being written
                continue
            if found.pop("token", None) == self.holder().get("token"):
                return found
            return {}
        return {}

    def _document(self) -> dict[str, object]:
        """Return what lies behind the first KiB. Raises: DataCorruptionError."""
        try:
            with self._fs.open(self.path) as file:
                raw = file.pread(max(0, file.size() - SIZE), SIZE)
        except FileNotFoundError:
            return {}
        try:
            return dict(unseal("endpoint", raw, path=self.path, cure=_CURE)) if raw else {}
        except UnsupportedVersionError:
            return {}
