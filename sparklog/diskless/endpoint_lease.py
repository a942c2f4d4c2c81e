"""The lease of a log's endpoints: objects `endpoint/<n>`, of which the highest is valid.

A process acquires the lease by creating the next number, in which only one process can succeed. The
holder overwrites its own object every ten seconds, and checks that it is still the highest. A lease
has expired if its object has not changed for half a minute by the observer's own monotonic clock,
or if it was released. This lease is not a term of the log: read-only endpoints acquire it too, and
changes of the log don't depend on it.

    token, pid, host, since_ms, endpoint (host:port for clients), node_id
    beat: different in each heartbeat; released: whether the lease was released
    told: the last data that the holder published for other processes
"""

import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparklog.clock import Clock, monotonic_ms
from sparklog.diskless.names import ENDPOINT, endpoint_name, parse_endpoint
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.stored_json import parse_json
from sparklog.tiered.object_store.store import Store

TIMEOUT_MS: Final = 30_000
_BEATS: Final = 3
_GONE_BEATS: Final = 4  # timeouts after which `published` ignores a holder
_LOGGER: Final = logging.getLogger(__name__)


class NumberedLease:
    """A `sparklog.storage.lease.EndpointLease` made of numbered objects. Thread-safe.

    `said`: the holder's description of itself. `timer`: monotonic, in ms.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        said: Mapping[str, object],
        *,
        timeout_ms: int = TIMEOUT_MS,
        timer: Callable[[], float] = monotonic_ms,
    ) -> None:
        self._store, self._clock, self._said = store, clock, dict(said)
        self._timeout_ms, self._timer = timeout_ms, timer
        self._token = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._number = 0  # of this process; 0 without the lease
        self._seen: tuple[int, bytes] | None = None  # (number, content) at the last check
        self._seen_at = self._beat_at = 0.0
        self._since_ms = 0
        self._told: dict[str, object] = {}

    @property
    def held(self) -> bool:
        """True if this process was the holder at the last check."""
        return self._number > 0

    def acquire(self) -> bool:
        """Try to acquire the lease, without waiting.

        Raises: StorageUnavailableError. Cost: a listing and a GET; two more requests to acquire it.
        """
        with self._lock:
            if self.held:
                return True
            last = self._highest()
            sign = self._sign(last)
            if last and not self._is_over(last, sign):
                return False
            return self._take(last + 1)

    def _is_over(self, number: int, sign: bytes) -> bool:
        now, content = self._timer(), _parsed(sign)
        if self._seen != (number, sign):
            self._seen, self._seen_at = (number, sign), now
        is_own = content.get("token") == self._token  # created by this process, without an answer
        return is_own or bool(content.get("released")) or now - self._seen_at >= self._timeout_ms

    def _take(self, number: int) -> bool:
        self._since_ms, self._told = self._clock(), {}  # data of an earlier lease are outdated
        if not self._store.create(endpoint_name(number), self._content()):
            return False
        self._beat_at = self._timer()
        names = self._listed()
        if max(names, default=number) > number:  # this process was slow; a higher number exists
            return False
        self._number = number
        self._delete([name for at, name in names.items() if at < number])
        return True

    def check(self) -> None:
        """Verify that this process is the holder; write a heartbeat if it is due.

        Raises: LeaseLostError. StorageUnavailableError: unknown.
        Cost: usually no request; a listing and a PUT every ten seconds.
        """
        with self._lock:
            if not self.held:
                raise LeaseLostError(f"{self._store.url}: this endpoint has no lease")
            if self._timer() - self._beat_at < self._timeout_ms / _BEATS:
                return
            if self._highest() != self._number:
                self._number = 0
                raise LeaseLostError(
                    f"{self._store.url}: {self.describe()} has taken over; standing back"
                )
            self._beat()

    def heartbeat(self) -> None:
        """No-op: `check` writes the heartbeat."""

    def holder(self) -> dict[str, object]:
        """Return the present or last holder; empty if the lease was never acquired.

        Cost: a listing and a GET.
        """
        return _parsed(self._sign(self._highest()))

    def describe(self) -> str:
        """Return the holder as text."""
        try:
            holder = self.holder()
        except StorageUnavailableError:
            holder = {}
        return f"the endpoint of process {holder.get('pid', '?')} on host {holder.get('host', '?')}"

    def publish(self, more: Mapping[str, object]) -> None:
        """Publish `more` for other processes. Cost: a PUT.

        Raises: LeaseLostError, StorageUnavailableError.
        """
        with self._lock:
            if not self.held:
                raise LeaseLostError(f"{self._store.url}: this endpoint has no lease")
            self._told = dict(more)
            self._beat()

    def published(self) -> Mapping[str, object] | None:
        """Return the data that the holder has published, if there is a holder.

        The lease counts as expired if its object is two minutes old, by the store's clock and this
        host's, which may differ by less. Cost: a listing and a GET.
        """
        times = {
            parse_endpoint(stored.name) or 0: stored.time_ms
            for stored in self._store.list(ENDPOINT)
        }
        number = max(times, default=0)
        content = _parsed(self._sign(number))
        is_old = self._clock() - times.get(number, 0) > _GONE_BEATS * self._timeout_ms
        if not content or content.get("released") or is_old:
            return None
        payload = content.get("told")
        return payload if isinstance(payload, dict) else {}

    def release(self) -> None:
        """Release the lease, so that another process can acquire it at once. Idempotent."""
        with self._lock:
            if self.held:
                try:
                    if self._highest() == self._number:
                        self._beat(released=True)
                except StorageUnavailableError as error:  # others wait until the timeout
                    _LOGGER.info("%s: the lease was not released: %s", self._store.url, error)
                self._number = 0

    def _beat(self, *, released: bool = False) -> None:
        self._store.put(endpoint_name(self._number), self._content(released=released))
        self._beat_at = self._timer()

    def _content(self, *, released: bool = False) -> bytes:
        mine = {
            **self._said,
            "token": self._token,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since_ms": self._since_ms,
            "beat": uuid.uuid4().hex,
            "released": released,
            "told": self._told,
        }
        return json.dumps(mine).encode()

    def _highest(self) -> int:
        return max(self._listed(), default=0)

    def _listed(self) -> dict[int, str]:
        parsed = (
            (parse_endpoint(stored.name), stored.name) for stored in self._store.list(ENDPOINT)
        )
        return {number: name for number, name in parsed if number is not None}

    def _sign(self, number: int) -> bytes:
        try:
            return self._store.get(endpoint_name(number)) if number else b""
        except (FileNotFoundError, DataCorruptionError):  # replaced by a higher number; or damaged
            return b""

    def _delete(self, names: list[str]) -> None:
        try:
            if names:
                self._store.delete(names)
        except StorageUnavailableError as error:
            _LOGGER.debug("older lease objects remain: %s", error)


def _parsed(sign: bytes) -> dict[str, Any]:
    try:
        content = parse_json(sign or b"{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
