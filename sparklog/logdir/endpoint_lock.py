"""`sparklog.endpoint`: the lease for coordinating groups in a log dir, and the holder's data.

The lock and the first KiB are as in a `ServiceLease`. After the first KiB, the file contains the
holder's published data as a checksummed document (see `stored_json`), padded with spaces:

    endpoint: {token: of the holder, ...: the published data}

The document is overwritten in place, so a reader that finds a partly written document reads again.
Data of an earlier holder are ignored, as are data of a holder that died, because the kernel
released its lock.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.clock import Clock, attempts
from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.fs import FileSystem
from sparklog.logdir.service_lease import ENDPOINT_NAME, SIZE, ServiceLease
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.stored_json import seal, unseal

_WRITTEN_WITHIN_MS: Final = 500
_CURE: Final = "its endpoint rewrites it"


class EndpointLock(ServiceLease):
    """A `sparklog.storage.lease.EndpointLease` by a lock file."""

    def __init__(self, fs: FileSystem, clock: Clock, home: str, said: Mapping[str, object]) -> None:
        super().__init__(fs, clock, home, name=ENDPOINT_NAME, what="endpoint", said=said)
        self._fs = fs
        self._told_size = 0

    def publish(self, more: Mapping[str, object]) -> None:
        """Publish `more`. Raises: LeaseLostError, StorageUnavailableError."""
        file = self._file
        if file is None:
            raise LeaseLostError(f"{self.path}: this endpoint has no lease")
        raw = seal("endpoint", {"token": self._token, **more})
        # Overwrite all of a longer or an earlier holder's document.
        self._told_size = max(self._told_size, len(raw), file.size() - SIZE)
        file.pwrite(raw.ljust(self._told_size), SIZE)

    def published(self) -> Mapping[str, object] | None:
        """Return the holder's published data, if the lease has a holder. Cost: two small reads."""
        for _ in attempts(_WRITTEN_WITHIN_MS):
            if not self._fs.is_locked(self.path, 0, 1):
                return None
            try:
                found = self._document()
            except DataCorruptionError:  # the holder is writing it
                continue
            if found.pop("token", None) == self.holder().get("token"):
                return found
            return {}
        return {}

    def _document(self) -> dict[str, object]:
        """Return the published document. Raises: DataCorruptionError."""
        try:
            with self._fs.open(self.path) as file:
                raw = file.pread(max(0, file.size() - SIZE), SIZE)
        except FileNotFoundError:
            return {}
        try:
            return dict(unseal("endpoint", raw, path=self.path, cure=_CURE)) if raw else {}
        except UnsupportedVersionError:
            return {}
