"""Creates ledger entries, and finds out whether a create request without an answer took effect.

A missing answer leaves the outcome open: the request may take effect at any later time. Therefore a
number has to be decided before anything else is tried, by the entry itself or by a no-op in its
place. An object under this number that can't be read (damaged, or of a newer sparklog) does not
decide the number, because it may be the entry.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.clock import iso, monotonic_ms, pause
from sparklog.diskless.entries import Entry, NoOpRecord, encode, new_attempt_id
from sparklog.diskless.ledger import EntryReader
from sparklog.diskless.names import entry_name
from sparklog.errors import CommitUnknownError, SparklogError, StorageUnavailableError
from sparklog.tiered.object_store.failures import is_refused

TIMEOUT_MS: Final = 120_000
"""How long creating an entry is retried (delivery.timeout.ms of Kafka's producer)."""
_NOOPS: Final = 2
SPREAD: Final = 3.0
"""Rounds reserved for each competitor; with 1, two of three attempts would still collide."""
BUSY: Final = 0.1
"""Share of the time that competitors' entries must take before a writer pauses."""
ROUND_MS_MAX: Final = 2_000.0
_OTHERS_MAX: Final = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The duration and the intervals of retries.

    Attributes:
        timeout_ms: The total time.
        first_ms: The first interval.
        longest_ms: The longest interval.
        sleep: Waits for a number of ms.
        draw: Returns a random number in [0, 1).
        timer: Returns a monotonic time in ms.
    """

    timeout_ms: float = TIMEOUT_MS
    first_ms: float = 50
    longest_ms: float = 5_000
    sleep: Callable[[float], None] = pause
    draw: Callable[[], float] = random.random
    timer: Callable[[], float] = monotonic_ms

    def back_off(self, number: int) -> None:
        """Wait a random time before attempt `number`, counted from 1."""
        self.sleep(self.draw() * min(self.first_ms * 2 ** min(number, 20), self.longest_ms))


class Contention:
    """Random pauses that reduce collisions between writers of a log.

    Only one of the writers that create the same entry wins, and a store may take long to refuse the
    others (SeaweedFS takes seconds). Therefore a writer with competitors spreads its attempts over
    the time that all of them need. Writers that lost more often pause for a shorter time, so that
    none starves. A writer without competitors never waits.

    The competitors are a handle's estimate. Thread-safe; correctness does not depend on it.
    """

    def __init__(self, retry_policy: RetryPolicy) -> None:
        self._retry_policy = retry_policy
        self._others = 0.0  # competitors' entries between two of ours, while busy; smoothed
        self._round_ms = 10.0  # time to create an entry, smoothed
        self._number, self._time_ms = -1, retry_policy.timer()  # of this handle's newest entry

    def pause(self, losses: int) -> bool:
        """Wait before an attempt, after `losses` lost races; return True if the call has waited.

        After a wait the caller should fold new entries, because others have committed in the
        meantime.
        """
        if self._others < 0.5:
            return False
        longest_ms = SPREAD * self._others * self._round_ms / (1 + losses)
        policy = self._retry_policy
        policy.sleep(policy.draw() * min(longest_ms, policy.longest_ms))
        return True

    def won(self, number: int, took_ms: float) -> None:
        """Record that this handle created entry `number`, and how long that took."""
        now_ms = self._retry_policy.timer()
        others, elapsed_ms = number - 1 - self._number, max(now_ms - self._time_ms, 1.0)
        self._round_ms = min((3 * self._round_ms + took_ms) / 4, ROUND_MS_MAX)
        if self._number < 0 or others * self._round_ms < BUSY * elapsed_ms:
            others = 0
        self._others = min((self._others + others) / 2, _OTHERS_MAX)
        self._number, self._time_ms = number, now_ms

    def lost(self) -> None:
        """Record a lost race, which proves that a competitor exists."""
        self._others = max(self._others, 1.0)


class EntryCreator:
    """Creates entries of a log. Thread-safe."""

    def __init__(self, entries: EntryReader, retry_policy: RetryPolicy) -> None:
        self._entries, self._retry_policy = entries, retry_policy
        self._allowed = False  # the store has accepted an entry of this client

    def create(self, number: int, entry: Entry, raw: bytes) -> bool:
        """Create entry `number`.

        Returns:
            True if the entry was created; False if the number belongs to another entry for good.

        Raises:
            StorageUnavailableError: The entry was not created, and never will be.
            CommitUnknownError: It is unknown whether the entry was created. This includes an
                object under this number that can't be read; its error is the cause.
        """
        try:
            return self._create(number, entry, raw)
        except SparklogError:
            raise
        except BaseException as error:  # e.g. interrupted: the request may still take effect
            error.add_note(
                f"it is unknown whether ledger entry {number} of {self._entries.store.url} is this "
                f"commit: ask Log.outcome(({number}, {entry.id!r}))"
            )
            raise

    def _create(self, number: int, entry: Entry, raw: bytes) -> bool:
        retry_policy, name = self._retry_policy, entry_name(self._entries.log_id, number)
        ends_ms, tries = retry_policy.timer() + retry_policy.timeout_ms, 0
        while True:
            tries, why, refusal = tries + 1, None, None
            try:
                if self._entries.store.create(name, raw):
                    self._allowed = True
                    return True
            except StorageUnavailableError as error:
                why = error
                # After a retry, the refusal may answer the retry, while the first request took
                # effect.
                if tries == 1 and self._is_final(error):
                    refusal = error
            # Also after "exists": the client may have repeated a request that had succeeded.
            try:
                existing = self._find(number, entry)
            except CommitUnknownError:
                raise
            except StorageUnavailableError as error:
                existing, why = None, error
            if existing is not None:
                return existing.id == entry.id
            if refusal is not None:
                raise StorageUnavailableError(
                    f"nothing was committed: {refusal}",
                    path=self._entries.path(number), passing=refusal.passing,
                ) from refusal  # fmt: skip
            waits = why is None or why.passing
            if retry_policy.timer() >= ends_ms or not waits:
                return self._give_up(number, entry, why)
            retry_policy.back_off(tries)

    def _is_final(self, error: StorageUnavailableError) -> bool:
        """Return True if a failed first request certainly has created no entry, and never will.

        The store must have refused the request. If the client library may have sent it twice, the
        refusal answers the second request, and the first request may still have created the entry
        (a token expired between the two). This is excluded for a client that was never allowed to
        create an entry.
        """
        return is_refused(error) and (self._entries.store.sends_once or not self._allowed)

    def _find(self, number: int, entry: Entry) -> Entry | None:
        """Return the entry under this number.

        Raises:
            StorageUnavailableError: The store does not answer, or refuses the request.
            CommitUnknownError: The object under this number can't be read.
        """
        try:
            return self._entries.find(number)
        except StorageUnavailableError:
            raise
        except SparklogError as error:
            raise self._unknown(number, entry, f"its object can't be read: {error}") from error

    def _give_up(
        self, number: int, entry: Entry, why: StorageUnavailableError | None
    ) -> bool:
        """Create a no-op under this number, so that the entry or the no-op decides the number.

        Returns:
            True if the store has the entry itself, False if it has another process's entry.

        Raises:
            StorageUnavailableError: The no-op has the number, so the entry will never be created.
            CommitUnknownError: The store does not answer, or refuses requests, so the number is
                undecided.
        """
        noop = Entry(
            id=new_attempt_id(), prev=entry.prev,
            record=NoOpRecord(time_ms=entry.record.time_ms, epoch=entry.record.epoch),
        )  # fmt: skip
        raw, name = encode(number, noop), entry_name(self._entries.log_id, number)
        for _ in range(_NOOPS):
            created, existing = False, None
            try:
                created = self._entries.store.create(name, raw)
            except StorageUnavailableError as error:
                why = error
            if not created:
                try:
                    existing = self._find(number, entry)
                except CommitUnknownError:
                    raise
                except StorageUnavailableError as error:
                    why = error
            if created or (existing is not None and existing.id == noop.id):
                raise self._failed(number, why)
            if existing is not None:
                return existing.id == entry.id
        answers = why is not None and not why.passing
        silence = "the store refuses requests" if answers else "the store doesn't answer"
        raise self._unknown(number, entry, f"{silence} ({why})") from why

    def _unknown(self, number: int, entry: Entry, why: str) -> CommitUnknownError:
        path = self._entries.path(number)
        return CommitUnknownError(
            f"it is unknown whether this was committed: {path} was sent at "
            f"{iso(entry.record.time_ms)}, and {why}. Once that is resolved, a replayed "
            f"micro-batch finds out automatically; for any other commit ask "
            f"Log.outcome(error), or Log.outcome(({number}, {entry.id!r}))",
            position=number, attempt=entry.id, path=path,
        )  # fmt: skip

    def _failed(
        self, number: int, why: StorageUnavailableError | None
    ) -> StorageUnavailableError:
        path = self._entries.path(number)
        return StorageUnavailableError(
            f"nothing was committed, now or later: {path} could not be created"
            f"{'' if why is None else f' ({why})'}; commit again",
            path=path, passing=True,
        )  # fmt: skip
