"""The lease of a log's endpoints: `endpoint/<n>`, of which the highest counts.

Who takes over creates the next number, which only one can; who holds it overwrites its own object
every ten seconds, and looks whether it is the highest still. One that stood still for half a
minute, by the watcher's own monotonic clock, or says that it was given back, is over. It is no
term of the log's: an endpoint that only reads has one, too, and no change of the log asks for it.

    token, pid, host, since_ms, endpoint (host:port that clients are to use), node_id
    beat: another one each time; released: whether it was given back
    told: what the holder tells the others, as it last did
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
from sparklog.storage.bounded_json import parse_json
from sparklog.storage.lease import LeaseLostError
from sparklog.tiered.object_store.store import Store

TIMEOUT_MS: Final = 30_000
_BEATS: Final = 3
_GONE_BEATS: Final = 4  # time-outs
_LOGGER: Final = logging.getLogger(__name__)


class NumberedLease:
    """A `sparklog.storage.lease.EndpointLease` by numbered objects. Threads may share it.

    `said`: what its holder says of itself to the others. `timer`: monotonic, in ms.
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
        self._number = 0  # the own one; 0 while it isn't held
        self._seen: tuple[int, bytes] | None = None  # (number, contents) that was looked at
        self._seen_at = self._beat_at = 0.0
        self._since_ms = 0
        self._told: dict[str, object] = {}

    @property
    def held(self) -> bool:
        """Whether it was ours when we last looked."""
        return self._number > 0

    def acquire(self) -> bool:
        """Try to get it, without waiting.

        Raises: StorageUnavailableError. Cost: a listing and a get; two more requests to take it.
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
        now, said = self._timer(), _parsed(sign)
        if self._seen != (number, sign):
            self._seen, self._seen_at = (number, sign), now
        is_own = said.get("token") == self._token  # a create of ours that seemed to fail
        return is_own or bool(said.get("released")) or now - self._seen_at >= self._timeout_ms

    def _take(self, number: int) -> bool:
        self._since_ms, self._told = self._clock(), {}  # what an earlier hold told is over
        if not self._store.create(endpoint_name(number), self._content()):
            return False
        self._beat_at = self._timer()
        names = self._listed()
        if max(names, default=number) > number:  # we were slow, and others have gone past it
            return False
        self._number = number
        self._delete([name for at, name in names.items() if at < number])
        return True

    def check(self) -> None:
        """Look whether it is still ours, and say that we live, if it is time.

        Raises: LeaseLostError. StorageUnavailableError: nobody can tell.
        Cost: nothing, but a listing and a put every ten seconds.
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
        """Do nothing: `check` does it."""

    def holder(self) -> dict[str, object]:
        """Who holds it, or held it last; nothing if nobody ever did. Cost: a listing and a get."""
        return _parsed(self._sign(self._highest()))

    def describe(self) -> str:
        """The holder in words."""
        try:
            who = self.holder()
        except StorageUnavailableError:
            who = {}
        return f"the endpoint of process {who.get('pid', '?')} on host {who.get('host', '?')}"

    def publish(self, more: Mapping[str, object]) -> None:
        """Let the others read `more`. Cost: a put.

        Raises: LeaseLostError, StorageUnavailableError.
        """
        with self._lock:
            if not self.held:
                raise LeaseLostError(f"{self._store.url}: this endpoint has no lease")
            self._told = dict(more)
            self._beat()

    def published(self) -> Mapping[str, object] | None:
        """Return what the holder tells; None if nobody holds it. Cost: a listing and a get.

        It is gone once its sign of life is some two minutes old: by the store's clock and this
        one, which may differ by less.
        """
        found = {parse_endpoint(one.name) or 0: one.time_ms for one in self._store.list(ENDPOINT)}
        number = max(found, default=0)
        said = _parsed(self._sign(number))
        is_old = self._clock() - found.get(number, 0) > _GONE_BEATS * self._timeout_ms
        if not said or said.get("released") or is_old:
            return None
        told = said.get("told")
        return told if isinstance(told, dict) else {}

    def release(self) -> None:
        """Give it back, so that another can have it at once. Idempotent."""
        with self._lock:
            if self.held:
                try:
                    if self._highest() == self._number:
                        self._beat(released=True)
                except StorageUnavailableError as error:  # the others wait half a minute then
                    _LOGGER.info("%s: the lease was not given back: %s", self._store.url, error)
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
        found = ((parse_endpoint(one.name), one.name) for one in self._store.list(ENDPOINT))
        return {number: name for number, name in found if number is not None}

    def _sign(self, number: int) -> bytes:
        try:
            return self._store.get(endpoint_name(number)) if number else b""
        except (FileNotFoundError, DataCorruptionError):  # a higher one took its place; or garbage
            return b""

    def _delete(self, names: list[str]) -> None:
        try:
            if names:
                self._store.delete(names)
        except StorageUnavailableError as error:
            _LOGGER.debug("older leases stay: %s", error)


def _parsed(sign: bytes) -> dict[str, Any]:
    try:
        found = parse_json(sign or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
