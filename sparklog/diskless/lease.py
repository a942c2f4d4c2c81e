"""The leases of a log in a bucket: heartbeat objects that their holders overwrite.

A lease has expired if it was released, or if its heartbeat has not changed for a timeout by the
observer's own monotonic clock, whatever the wall clocks of the hosts are.

**Services.** A service acquires the log by an entry with the next term. All its changes are entries
too, and are rejected unless the log still has this term, so correctness never depends on clocks.
Another service takes over when the heartbeat `service/<term>` has not changed for a minute. If both
work for a while, that only wastes work. The heartbeat also contains the progress of the work
(`ServiceNotes`) as a hint for the next holder, which otherwise examines more than necessary.

**Endpoints.** The highest of the objects `endpoint/<n>` is valid. An endpoint acquires the lease by
creating the next number, in which only one process can succeed. The holder overwrites its own
object every ten seconds, and checks that it is still the highest. The lease expires after half a
minute. This lease is not a term of the log: read-only endpoints acquire it too, and changes of the
log don't depend on it. Its fields:

    token, pid, host, since_ms, endpoint (host:port for clients), node_id
    beat: different in each heartbeat; released: whether the lease was released
    told: the last data that the holder published for other processes
"""

import contextlib
import json
import logging
import os
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.clock import Clock, monotonic_ms
from sparklog.diskless.entries import TermRecord
from sparklog.diskless.names import (
    ENDPOINT,
    asked_name,
    endpoint_name,
    parse_endpoint,
    service_name,
)
from sparklog.diskless.service_log import ConflictError, NewEntry, ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.storage.lease import HomeLease
from sparklog.storage.stored_json import parse_json
from sparklog.tiered.object_store.store import Store

_LOGGER: Final = logging.getLogger("sparklog.service")
TIMEOUT_MS: Final = 60_000
ENDPOINT_TIMEOUT_MS: Final = 30_000
BEATS: Final = 3  # heartbeats per timeout
_GONE_BEATS: Final = 4  # timeouts after which `published` ignores a holder
_ASK_MS: Final = 10_000  # interval between requests for the lease


@dataclass(slots=True)
class ServiceNotes:
    """The progress of a log's services, for a successor. Outdated notes cost additional checks.

    Attributes:
        cleaned: {"<topic id>/<partition>": first dirty offset} of compacted partitions.
        cut_below: The number of the first entry that may contain inline data that are not needed
            any more.
        announced: The announced deletions, see `deletion_announcements`.
        let_go: {segment id: time in ms} of segments that an entry removed from the log at that
            time, and that are to be deleted.
        let_go_bytes: {segment id: (topic, bytes)} of the same segments.
    """

    cleaned: dict[str, int] = field(default_factory=dict)
    cut_below: int = 0
    announced: dict[str, dict[str, bool]] = field(default_factory=dict)
    let_go: dict[str, int] = field(default_factory=dict)
    let_go_bytes: dict[str, tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "ServiceNotes":
        """Parse the notes in a heartbeat; invalid fields are ignored."""
        cleaned, announced = _dict(fields.get("cleaned")), _dict(fields.get("announced"))
        cut_below, let_go = fields.get("cut_below"), _dict(fields.get("let_go"))
        let_go_bytes = _dict(fields.get("let_go_bytes"))
        return cls(
            {name: offset for name, offset in cleaned.items() if type(offset) is int},
            cut_below if type(cut_below) is int and cut_below >= 0 else 0,
            {what: _dict(known) for what, known in announced.items()},
            {segment: at_ms for segment, at_ms in let_go.items() if type(at_ms) is int},
            {
                segment: (str(said[0]), said[1])
                for segment, said in let_go_bytes.items()
                if type(said) is list and len(said) == 2 and type(said[1]) is int
            },
        )


def _dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


@dataclass(slots=True)
class Tenure:
    """The identity with which a service resumes its term after closing and reopening the log.

    A forked child process does not inherit the term.

    Attributes:
        term: The last term that process `pid` had in the log `log_id`, or 0.
    """

    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    log_id: str = ""
    term: int = 0
    pid: int = 0


class SilenceTimer:
    """Measures how long an object has not changed, by this process's monotonic clock (ms)."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._seen: object = None
        self._seen_at = 0.0

    def silent_ms(self, content: object) -> float:
        """Return how long ago `content`, the object's current content, was first passed."""
        now = self._timer()
        if content != self._seen:
            self._seen, self._seen_at = content, now
        return now - self._seen_at


class HeartbeatLease(HomeLease):
    """A lease with numbered holders, of which the holder with the highest number is valid.

    The argument `timer` returns a monotonic time in ms.
    """

    def __init__(
        self, store: Store, purpose: str, timeout_ms: int, timer: Callable[[], float]
    ) -> None:
        super().__init__(store.url, purpose)
        self._store, self._timeout_ms, self._timer = store, timeout_ms, timer
        self._silence = SilenceTimer(timer)
        self._beat_at = float("-inf")
        self.term = 0
        """The number of this process as the holder; 0 while it does not hold the lease."""

    @property
    def held(self) -> bool:
        """True if this process was the holder at the last check."""
        return self.term > 0

    @abstractmethod
    def _newest(self) -> int:
        """Return the highest number. Makes a request."""

    @abstractmethod
    def _name(self, number: int) -> str:
        """Return the name of a holder's heartbeat."""

    @abstractmethod
    def _beat(self, *, released: bool = False) -> None:
        """Write a heartbeat, with different content each time."""

    def _sign(self, number: int) -> bytes:
        return _heartbeat(self._store, self._name(number)) if number else b""

    def _is_over(self, number: int, sign: bytes) -> bool:
        """Return True if holder `number` has released the lease, or if its heartbeat has expired.

        `sign` is the content of the holder's heartbeat object.
        """
        silent_ms = self._silence.silent_ms((number, sign))
        return bool(_parsed(sign).get("released")) or silent_ms >= self._timeout_ms

    def _is_current(self) -> bool:
        """Return True if this process's number is still valid; write a due heartbeat."""
        if self._timer() - self._beat_at >= self._timeout_ms / BEATS:
            if self._newest() != self.term:
                return False
            self._beat()
        return True

    def _drop(self) -> None:
        self.term = 0

    def heartbeat(self) -> None:
        """No-op: `check` writes the heartbeat."""

    def release(self) -> None:
        """Release the lease, so that another process can acquire it at once. Idempotent."""
        with self._lock:
            if self.held:
                try:
                    self._write_release()
                except StorageUnavailableError as error:  # others wait until the timeout
                    _LOGGER.info("%s: the lease was not released: %s", self.place, error)
                self._drop()

    def _write_release(self) -> None:
        self._beat(released=True)


class TermLease(HeartbeatLease):
    """A `sparklog.storage.lease.UpkeepLease` based on terms. Thread-safe.

    `notes` belong to the holder, which takes them over from the previous holder. `timer` returns a
    monotonic time in ms.

    Cost of `check`: usually no request; a GET and a PUT three times per minute, and another GET if
    this process lends the lease.
    """

    def __init__(
        self,
        log: ServiceLog,
        *,
        timeout_ms: int = TIMEOUT_MS,
        look_ms: float = 0,
        timer: Callable[[], float] = monotonic_ms,
        tenure: Tenure | None = None,
    ) -> None:
        """Prepare the lease, without a request.

        Args:
            log: The log.
            timeout_ms: The time without a heartbeat after which a lease expires.
            look_ms: The minimum interval between requests of a standby.
            timer: Returns a monotonic time in ms.
            tenure: The identity from an earlier lease of this service.
        """
        super().__init__(log.store, "service", timeout_ms, timer)
        self._log, self._look_ms, self._looked_at = log, look_ms, float("-inf")
        self._tenure = Tenure() if tenure is None else tenure
        if self._is_own(self._tenure.term):
            self._token = self._tenure.token
        self.notes = ServiceNotes()
        self._asking = 0  # this process has sent a request to the holder of this term
        self._asked_at = self._listened_at = float("-inf")
        self._request_silence = SilenceTimer(timer)  # of another process's request
        self._wanted = False

    def acquire(self) -> bool:
        """Try to acquire the lease, without waiting.

        The lease is free if its holder has released it, or has written no heartbeat for a minute.

        Cost: two GETs, and two PUTs on success.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            CommitUnknownError: It is unknown whether the entry was created.
        """
        with self._lock:
            if self.held:
                return True
            if self._timer() - self._looked_at < self._look_ms:
                return False
            self._looked_at = self._timer()
            state = self._log.follow()
            sign = self._sign(state.term)
            # The service reopened its log: it continues its term without a new entry.
            if self._is_own(state.term) and _parsed(sign).get("token") == self._token:
                self._hold(state.term, _parsed(sign))
                return True
            if state.term and not self._is_over(state.term, sign):
                return False
            return self._take(state.term, _parsed(sign))

    def _is_own(self, term: int) -> bool:
        """Return True if `term` is the last term that this process had in this log."""
        last = self._tenure
        return term > 0 and (term, self._log.log_id, os.getpid()) == (
            last.term, last.log_id, last.pid
        )  # fmt: skip

    def _take(self, before: int, last: Mapping[str, Any]) -> bool:
        record = TermRecord(term=before + 1, holder=self._who())

        def decide(now: DisklessState) -> NewEntry:
            if now.term != before:
                raise ConflictError(f"another process has begun term {now.term}")
            return NewEntry(record=record)

        try:
            self._log.create(decide)
        except ConflictError:
            return False
        self._hold(record.term, last)
        return True

    def _hold(self, term: int, last: Mapping[str, Any]) -> None:
        self.term, self.notes = term, ServiceNotes.parse(last)
        self._tenure.term = 0  # set again on release
        self._beat()

    def _newest(self) -> int:
        return self._log.follow().term

    def _name(self, number: int) -> str:
        return service_name(number)

    def _is_current(self) -> bool:
        return super()._is_current() and self._log.state.term == self.term

    # --- requesting the lease ------------------------------------------------------------------

    def request(self) -> None:
        """Request the lease from its holder, by writing the object `asked/<term>` every 10 seconds.

        A request expires after a minute.
        """
        with self._lock:
            term, now = self._log.state.term, self._timer()
            if not term or (term == self._asking and now - self._asked_at < _ASK_MS):
                return
            content = {"beat": uuid.uuid4().hex, "time_ms": self._log.clock(), **self._who()}
            self._log.store.put(asked_name(term), json.dumps(content).encode())
            self._asking, self._asked_at = term, now

    def withdraw(self) -> None:
        """Withdraw the request. Idempotent."""
        with self._lock:
            term, self._asking = self._asking, 0
            if term:
                self._log.store.delete([asked_name(term)])

    def is_requested(self) -> bool:
        """Return True if another process requests the lease. Deletes an expired request.

        Cost: a GET three times per minute for the holder; for other processes two GETs, at most
            once per `look_ms`.
        """
        with self._lock:
            now = self._timer()
            if self._asking:
                return False
            pause_ms = self._timeout_ms / BEATS if self.held else self._look_ms
            if now - self._listened_at < pause_ms:
                return self._wanted
            self._listened_at = now
            term = self.term or self._log.follow().term
            try:
                request = self._log.store.get(asked_name(term))
            except (FileNotFoundError, DataCorruptionError):  # too large: not a request
                self._wanted = False
                return False
            silent_ms = self._request_silence.silent_ms((term, request))
            self._wanted = silent_ms < self._timeout_ms
            if not self._wanted:
                self._log.store.delete([asked_name(term)])
            return self._wanted

    def renew(self) -> None:
        """Write a heartbeat with the notes now, if this process is the holder."""
        with self._lock:
            if self.held:
                self._beat()

    def known_notes(self) -> ServiceNotes:
        """Return the holder's notes. Cost: a GET unless this process is the holder."""
        with self._lock:
            if self.held:
                return self.notes
            return ServiceNotes.parse(_parsed(self._sign(self._log.state.term)))

    def holder(self) -> dict[str, object]:
        """Return the present or last holder; empty if there was no holder yet. Cost: a GET."""
        with contextlib.suppress(StorageUnavailableError):  # then by the known state
            return dict(self._log.follow().holder)
        return dict(self._log.state.holder)

    def release(self) -> None:
        """Release the lease, so that another process can acquire it at once. Idempotent."""
        with self._lock:
            term = self.term
            super().release()
            if term:
                last = self._tenure
                last.token, last.log_id = self._token, self._log.log_id
                last.term, last.pid = term, os.getpid()

    def _beat(self, *, released: bool = False) -> None:
        """Write a heartbeat, with different content each time."""
        self._beat_at = self._timer()
        content = {
            **self._who(),
            "beat": uuid.uuid4().hex,
            "released": released,
            "time_ms": self._log.clock(),
            "cleaned": self.notes.cleaned,
            "cut_below": self.notes.cut_below,
            "announced": self.notes.announced,
            "let_go": self.notes.let_go,
            "let_go_bytes": self.notes.let_go_bytes,
        }
        self._log.store.put(service_name(self.term), json.dumps(content).encode())

    def _who(self) -> dict[str, object]:
        self._since_ms = self._since_ms or self._log.clock()
        return self._own_description()


class NumberedLease(HeartbeatLease):
    """A `sparklog.storage.lease.EndpointLease` made of numbered objects. Thread-safe.

    Args:
        store: The store of the log.
        clock: The current time.
        said: The description of this endpoint, which other processes read.
        timeout_ms: The time without a heartbeat after which the lease expires.
        timer: Returns a monotonic time in ms.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        said: Mapping[str, object],
        *,
        timeout_ms: int = ENDPOINT_TIMEOUT_MS,
        timer: Callable[[], float] = monotonic_ms,
    ) -> None:
        super().__init__(store, "endpoint", timeout_ms, timer)
        self._clock, self._said = clock, dict(said)
        self._told: dict[str, object] = {}

    def acquire(self) -> bool:
        """Try to acquire the lease, without waiting.

        Cost: a listing and a GET; two more requests to acquire it.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
        """
        with self._lock:
            if self.held:
                return True
            last = self._newest()
            sign = self._sign(last)
            if last and not self._is_over(last, sign):
                return False
            return self._take(last + 1)

    def _is_over(self, number: int, sign: bytes) -> bool:
        # A lease with this token was created by this process, without an answer.
        is_over = super()._is_over(number, sign)
        return is_over or _parsed(sign).get("token") == self._token

    def _take(self, number: int) -> bool:
        self._since_ms, self._told = self._clock(), {}  # data of an earlier lease are outdated
        if not self._store.create(endpoint_name(number), self._content()):
            return False
        self._beat_at = self._timer()
        names = self._listed()
        if max(names, default=number) > number:  # this process was slow; a higher number exists
            return False
        self.term = number
        self._delete([name for at, name in names.items() if at < number])
        return True

    def holder(self) -> dict[str, object]:
        """Return the present or last holder; empty if the lease was never acquired.

        Cost: a listing and a GET.
        """
        return _parsed(self._sign(self._newest()))

    def publish(self, more: Mapping[str, object]) -> None:
        """Write data into the lease's object, where other processes read them with `published`.

        Args:
            more: The data, which replace the data of an earlier call.

        Raises:
            LeaseLostError: Another process holds the lease.
            StorageUnavailableError: The store fails.

        Cost:
            A PUT.
        """
        with self._lock:
            self._check_held()
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

    def _write_release(self) -> None:
        if self._newest() == self.term:
            self._beat(released=True)

    def _beat(self, *, released: bool = False) -> None:
        self._store.put(endpoint_name(self.term), self._content(released=released))
        self._beat_at = self._timer()

    def _content(self, *, released: bool = False) -> bytes:
        mine = {
            **self._own_description(),
            "beat": uuid.uuid4().hex,
            "released": released,
            "told": self._told,
        }
        return json.dumps(mine).encode()

    def _newest(self) -> int:
        return max(self._listed(), default=0)

    def _name(self, number: int) -> str:
        return endpoint_name(number)

    def _listed(self) -> dict[int, str]:
        parsed = (
            (parse_endpoint(stored.name), stored.name) for stored in self._store.list(ENDPOINT)
        )
        return {number: name for number, name in parsed if number is not None}

    def _delete(self, names: list[str]) -> None:
        try:
            if names:
                self._store.delete(names)
        except StorageUnavailableError as error:
            _LOGGER.debug("older lease objects were not deleted: %s", error)


def sign_of_life(store: Store, term: int) -> dict[str, Any]:
    """Return the last heartbeat of a term's holder; empty if there is none. Cost: a GET.

    In the result, `released` means that the holder has released the lease, and `time_ms` is the
    time of the heartbeat by the holder's clock.
    """
    return _parsed(_heartbeat(store, service_name(term)) if term else b"")


def _heartbeat(store: Store, name: str) -> bytes:
    try:
        return store.get(name)
    except (FileNotFoundError, DataCorruptionError):  # too large: not a heartbeat
        return b""


def _parsed(sign: bytes) -> dict[str, Any]:
    try:
        return _dict(parse_json(sign or b"{}"))
    except ValueError:
        return {}
