"""The lease of a service: the log's term, and a heartbeat object that its holder overwrites.

A service acquires the log by an entry with the next term. All its changes are entries too, and are
rejected unless the log still has this term, so correctness never depends on clocks. Another service
takes over when the heartbeat `service/<term>` has not changed for a minute by its own monotonic
clock, whatever the wall clocks of the hosts are. If both work for a while, that only wastes work.

The heartbeat also contains the progress of the work (`ServiceNotes`) as a hint for the next holder,
which otherwise examines more than necessary.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.clock import monotonic_ms
from sparklog.diskless.entries import TermRecord
from sparklog.diskless.names import asked_name, service_name
from sparklog.diskless.service_log import ConflictError, NewEntry, ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.stored_json import parse_json
from sparklog.tiered.object_store.store import Store

_LOGGER: Final = logging.getLogger("sparklog.service")
TIMEOUT_MS: Final = 60_000
BEATS: Final = 3  # heartbeats per timeout
_ASK_MS: Final = 10_000  # interval between requests for the lease


@dataclass(slots=True)
class ServiceNotes:
    """Progress of a log's services. Hints: outdated notes only cost additional checks.

    `cleaned`: {"<topic id>/<partition>": first dirty offset}. `cut_below`: inline data that could
    be removed were removed from all entries below it. `announced`: see `deletion_announcements`.
    `let_go`: {segment id: when an entry removed it from the log, ms}, of segments to be deleted;
    `let_go_bytes`: {segment id: (topic, bytes)}.
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
    """Identity with which a service resumes its term after it has closed and reopened its log.

    `term`: the last term that process `pid` had in the log `log_id`; 0: none. A forked child does
    not inherit it.
    """

    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    log_id: str = ""
    term: int = 0
    pid: int = 0


class TermLease:
    """A `sparklog.storage.lease.UpkeepLease` based on terms. Thread-safe.

    `timer`: monotonic, in ms. `notes` belong to the holder, which takes them over from the previous
    holder.
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
        """`look_ms`: minimum interval between requests of a standby.

        `tenure`: from earlier leases.
        """
        self._log, self._timeout_ms, self._timer = log, timeout_ms, timer
        self._look_ms, self._looked_at = look_ms, float("-inf")
        self._tenure = Tenure() if tenure is None else tenure
        self._token = self._tenure.token if self._is_own(self._tenure.term) else uuid.uuid4().hex
        self._lock = threading.RLock()
        self._seen: tuple[int, bytes] | None = None  # (term, heartbeat) of the last check
        self._seen_at = 0.0
        self._beat_at = float("-inf")
        self._since_ms = 0
        self.term = 0
        """The term of this process; 0 while it does not hold the lease."""
        self.notes = ServiceNotes()
        self.lends: bool | None = None
        """True if this process releases the lease on request; its heartbeat says so."""
        self._asking = 0  # this process has sent a request to the holder of this term
        self._asked_at = float("-inf")
        self._heard: tuple[int, bytes] | None = None  # (term, request of another process)
        self._heard_at = self._listened_at = float("-inf")
        self._wanted = False

    @property
    def held(self) -> bool:
        """True if this process was the holder at the last check."""
        return self.term > 0

    def acquire(self) -> bool:
        """Try to acquire the lease, without waiting: it must be released, or silent for a minute.

        Raises: StorageUnavailableError, CommitUnknownError. Cost: two GETs, and two PUTs on
            success.
        """
        with self._lock:
            if self.held:
                return True
            if self._timer() - self._looked_at < self._look_ms:
                return False
            self._looked_at = self._timer()
            state = self._log.follow()
            sign = self._sign(state.term)
            if self._is_own(state.term) and _parsed(sign).get("token") == self._token:
                self._hold(state.term, _parsed(sign))
                return True
            if state.term and not self._is_over(state.term, sign):
                return False
            return self._take(state.term, _parsed(sign))

    def _is_own(self, term: int) -> bool:
        """Return True if this process released this term, and the lease is still free."""
        last = self._tenure
        return term > 0 and (term, self._log.log_id, os.getpid()) == (
            last.term, last.log_id, last.pid
        )  # fmt: skip

    def _is_over(self, term: int, sign: bytes) -> bool:
        now = self._timer()
        if self._seen != (term, sign):
            self._seen, self._seen_at = (term, sign), now
        return bool(_parsed(sign).get("released")) or now - self._seen_at >= self._timeout_ms

    def _take(self, before: int, last: Mapping[str, Any]) -> bool:
        record = TermRecord(term=before + 1, holder=self._who())

        def decide(now: DisklessState) -> NewEntry:
            if now.term != before:
                raise ConflictError(f"term {now.term} was taken meanwhile")
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

    def check(self) -> None:
        """Write a heartbeat if it is due, and verify that the term is still ours.

        Raises: LeaseLostError: also if this process lends the lease and another process requests
            it. This process then remains the holder until it calls `release`.
            StorageUnavailableError: unknown.
        Cost: usually no request; a GET and a PUT three times per minute, and another GET if
            this process lends the lease.
        """
        with self._lock:
            if self.held and self._timer() - self._beat_at >= self._timeout_ms / BEATS:
                state = self._log.follow()
                if state.term == self.term:
                    self._beat()
            if not self.held or self._log.state.term != self.term:
                held, self.term = self.term, 0
                if not held:
                    raise LeaseLostError(f"{self._log.store.url}: this service has no lease")
                raise LeaseLostError(
                    f"{self._log.store.url}: {self.describe()} has taken over; standing back"
                )
            if self.lends and self.is_requested():
                raise LeaseLostError(
                    f"{self._log.store.url}: another process asks for it; standing back"
                )

    # --- requesting the lease ------------------------------------------------------------------

    def request(self) -> None:
        """Write `asked/<term>` every 10 seconds. A request expires after a minute."""
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
                heard = (term, self._log.store.get(asked_name(term)))
            except (FileNotFoundError, DataCorruptionError):  # too large: not a request
                self._wanted = False
                return False
            if heard != self._heard:
                self._heard, self._heard_at = heard, now
            self._wanted = now - self._heard_at < self._timeout_ms
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

    def heartbeat(self) -> None:
        """No-op: `check` writes the heartbeat."""

    def holder(self) -> dict[str, object]:
        """Return the present or last holder; empty if there was no holder yet. Cost: a GET."""
        with contextlib.suppress(StorageUnavailableError):  # then by the known state
            return dict(self._log.follow().holder)
        return dict(self._log.state.holder)

    def describe(self) -> str:
        """Return the holder as text."""
        holder = self.holder()
        return f"the service of process {holder.get('pid', '?')} on host {holder.get('host', '?')}"

    def release(self) -> None:
        """Release the lease, so that another process can acquire it at once. Idempotent."""
        with self._lock:
            if self.held:
                try:
                    self._beat(released=True)
                except StorageUnavailableError as error:  # others wait until the timeout
                    _LOGGER.info("%s: the lease was not released: %s", self._log.store.url, error)
                last = self._tenure
                last.token, last.log_id = self._token, self._log.log_id
                last.term, last.pid, self.term = self.term, os.getpid(), 0

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
        return {
            "token": self._token,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since_ms": self._since_ms,
            **({} if self.lends is None else {"lends": self.lends}),
        }

    def _sign(self, term: int) -> bytes:
        return _sign(self._log.store, term)


def sign_of_life(store: Store, term: int) -> dict[str, Any]:
    """Return the last heartbeat of a term's holder; empty if there is none. Cost: a GET.

    `released`: the holder has released the lease. `time_ms`: when it was written, by the holder's
    clock.
    """
    return _parsed(_sign(store, term))


def _sign(store: Store, term: int) -> bytes:
    try:
        return store.get(service_name(term)) if term else b""
    except (FileNotFoundError, DataCorruptionError):  # too large: not a heartbeat
        return b""


def _parsed(sign: bytes) -> dict[str, Any]:
    try:
        content = parse_json(sign or b"{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
