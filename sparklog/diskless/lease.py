"""The lease of a service: the log's term, and a sign of life that its holder overwrites.

To take the log is an entry with the next term; what a service changes is an entry too, refused
unless the term is still its own. So nothing hangs on who believes what. Another service takes over
when the sign of life, `service/<term>`, stood still for a minute by that one's own monotonic clock,
whatever the two machines' wall clocks say: both at work is only a waste.

The sign of life also says how far the work is (`ServiceNotes`), which is a hint for the next
holder: without it, or with an older one, it looks at more than it needs to.
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
from sparklog.diskless.names import service_name
from sparklog.diskless.service_log import NewEntry, ServiceLog, VoidError
from sparklog.diskless.state import DisklessState
from sparklog.errors import StorageUnavailableError
from sparklog.storage.lease import LeaseLostError

_LOGGER: Final = logging.getLogger("sparklog.service")
TIMEOUT_MS: Final = 60_000
_BEATS: Final = 3  # signs of life within the time after which another one takes over


@dataclass(slots=True)
class ServiceNotes:
    """How far a log's services are. Hints: what is older only costs another look.

    `cleaned`: {"<topic id>/<partition>": first dirty offset}. `cut_below`: of all entries below it
    the inline data were cut that could be. `announced`: see `deletion_announcements`.
    """

    cleaned: dict[str, int] = field(default_factory=dict)
    cut_below: int = 0
    announced: dict[str, dict[str, bool]] = field(default_factory=dict)

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "ServiceNotes":
        """Return what a sign of life says; nothing of what isn't as it should be."""
        cleaned, announced = _dict(fields.get("cleaned")), _dict(fields.get("announced"))
        cut_below = fields.get("cut_below")
        return cls(
            {name: offset for name, offset in cleaned.items() if type(offset) is int},
            cut_below if type(cut_below) is int and cut_below >= 0 else 0,
            {what: _dict(known) for what, known in announced.items()},
        )


def _dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


class TermLease:
    """A `sparklog.storage.lease.Lease` by term. Threads may share it.

    `timer`: monotonic, in ms. `notes` are the holder's, taken over from the one before.
    """

    def __init__(
        self,
        log: ServiceLog,
        *,
        timeout_ms: int = TIMEOUT_MS,
        look_ms: float = 0,
        timer: Callable[[], float] = monotonic_ms,
    ) -> None:
        """`look_ms`: who stands by asks the store no more often."""
        self._log, self._timeout_ms, self._timer = log, timeout_ms, timer
        self._look_ms, self._looked_at = look_ms, float("-inf")
        self._token = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._seen: tuple[int, bytes] | None = None  # (term, sign of life) that was looked at
        self._seen_at = 0.0
        self._beat_at = float("-inf")
        self._since_ms = 0
        self.term = 0
        """The own one; 0 while it isn't held."""
        self.notes = ServiceNotes()

    @property
    def held(self) -> bool:
        """Whether it was ours when we last looked."""
        return self.term > 0

    def acquire(self) -> bool:
        """Try to get it, without waiting: its holder must have ended, or stood still for a minute.

        Raises: StorageUnavailableError, CommitUnknownError. Cost: two gets, and two puts once it
        is ours.
        """
        with self._lock:
            if self.held:
                return True
            if self._timer() - self._looked_at < self._look_ms:
                return False
            self._looked_at = self._timer()
            state = self._log.follow()
            sign = self._sign(state.term)
            if state.term and not self._is_over(state.term, sign):
                return False
            return self._take(state.term, _parsed(sign))

    def _is_over(self, term: int, sign: bytes) -> bool:
        now = self._timer()
        if self._seen != (term, sign):
            self._seen, self._seen_at = (term, sign), now
        return bool(_parsed(sign).get("released")) or now - self._seen_at >= self._timeout_ms

    def _take(self, before: int, last: Mapping[str, Any]) -> bool:
        record = TermRecord(term=before + 1, holder=self._who())

        def decide(now: DisklessState) -> NewEntry:
            if now.term != before:
                raise VoidError(f"term {now.term} was taken meanwhile")
            return NewEntry(record=record)

        try:
            self._log.create(decide)
        except VoidError:
            return False
        self.term, self.notes = record.term, ServiceNotes.parse(last)
        self._beat()
        return True

    def check(self) -> None:
        """Renew the sign of life if it is time, and look whether the term is still ours.

        Raises: LeaseLostError. StorageUnavailableError: nobody can tell.
        Cost: nothing, but a get and a put three times a minute.
        """
        with self._lock:
            if self.held and self._timer() - self._beat_at >= self._timeout_ms / _BEATS:
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

    def renew(self) -> None:
        """Write the sign of life with the notes, now, if it is ours."""
        with self._lock:
            if self.held:
                self._beat()

    def holder(self) -> dict[str, object]:
        """Who holds it or held it last; nothing if nobody ever did. Cost: a get."""
        with contextlib.suppress(StorageUnavailableError):  # then as far as is known
            return dict(self._log.follow().holder)
        return dict(self._log.state.holder)

    def describe(self) -> str:
        """The holder in words."""
        who = self.holder()
        return f"the service of process {who.get('pid', '?')} on host {who.get('host', '?')}"

    def release(self) -> None:
        """Give it back, so that another can have it at once. Idempotent."""
        with self._lock:
            if self.held:
                try:
                    self._beat(released=True)
                except StorageUnavailableError as error:  # the others wait a minute then
                    _LOGGER.info("%s: the lease was not given back: %s", self._log.store.url, error)
                self.term = 0

    def _beat(self, *, released: bool = False) -> None:
        """Overwrite the sign of life: another one each time, whoever wrote it."""
        self._beat_at = self._timer()
        content = {
            **self._who(),
            "beat": uuid.uuid4().hex,
            "released": released,
            "cleaned": self.notes.cleaned,
            "cut_below": self.notes.cut_below,
            "announced": self.notes.announced,
        }
        self._log.store.put(service_name(self.term), json.dumps(content).encode())

    def _who(self) -> dict[str, object]:
        self._since_ms = self._since_ms or self._log.clock()
        return {
            "token": self._token,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since_ms": self._since_ms,
        }

    def _sign(self, term: int) -> bytes:
        try:
            return self._log.store.get(service_name(term)) if term else b""
        except FileNotFoundError:
            return b""


def _parsed(sign: bytes) -> dict[str, Any]:
    try:
        found = json.loads(sign or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
