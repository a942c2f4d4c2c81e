"""Creating an entry, whatever the store answers: it is there, another's is, or nobody knows yet.

An answer that doesn't come says nothing: the request may take effect at any later time. So a number
is decided before anything else is tried, by the entry itself or by a no-op in its place. What lies
there and can't be read (damaged, or a newer sparklog's) decides nothing: it may be the entry.
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
"""How long an entry is tried (delivery.timeout.ms of Kafka's producer)."""
_NOOPS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long and how often. `timeout_ms`: in all; `sleep`, `timer` in ms, `draw` in [0, 1)."""

    timeout_ms: float = TIMEOUT_MS
    first_ms: float = 50
    longest_ms: float = 5_000
    sleep: Callable[[float], None] = pause
    draw: Callable[[], float] = random.random
    timer: Callable[[], float] = monotonic_ms

    def back_off(self, number: int) -> None:
        """Wait a random while before try `number`, from 1."""
        self.sleep(self.draw() * min(self.first_ms * 2 ** min(number, 20), self.longest_ms))


class EntryCreator:
    """Creates entries of one log. Threads may share it."""

    def __init__(self, entries: EntryReader, retry_policy: RetryPolicy) -> None:
        self._entries, self._retry_policy = entries, retry_policy
        self._allowed = False  # whether the store has ever let us create one

    def create(self, number: int, entry: Entry, raw: bytes) -> bool:
        """Make an entry the log's entry `number`.

        Returns: True: it is. False: another one is, and this one never will be.
        Raises: StorageUnavailableError: it isn't, and never will be. CommitUnknownError: also where
            what lies there can't be read, which is its cause then.
        """
        try:
            return self._create(number, entry, raw)
        except SparklogError:
            raise
        except BaseException as error:  # interrupted, say: it may be there, or come to be
            error.add_note(
                f"whether ledger entry {number} of {self._entries.store.url} is this commit is not "
                f"known: ask Log.outcome(({number}, {entry.id!r}))"
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
                if tries == 1 and self._is_final(error):
                    refusal = error
            try:
                found = self._find(number, entry)
            except CommitUnknownError:
                raise
            except StorageUnavailableError as error:
                found, why = None, error
            if found is not None:
                return found.id == entry.id
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
        """Whether a failed first request to create an entry made none, and never will.

        The store must have refused it. If the client library may have sent the request twice, the
        refusal is the answer to the second one, and the first one may still have created the entry
        (a token expired between the two). This is excluded for a client that was never allowed to
        create an entry.
        """
        return is_refused(error) and (self._entries.store.sends_once or not self._allowed)

    def _find(self, number: int, entry: Entry) -> Entry | None:
        """Return what lies there. Raises: StorageUnavailableError; CommitUnknownError."""
        try:
            return self._entries.find(number)
        except StorageUnavailableError:
            raise
        except SparklogError as error:
            raise self._unknown(number, entry, f"what lies there can't be read: {error}") from error

    def _give_up(
        self, number: int, entry: Entry, why: StorageUnavailableError | None
    ) -> bool:
        """Have the number decided by a no-op: whoever of the two is there has it."""
        noop = Entry(
            id=new_attempt_id(), prev=entry.prev,
            record=NoOpRecord(time_ms=entry.record.time_ms, epoch=entry.record.epoch),
        )  # fmt: skip
        raw, name = encode(number, noop), entry_name(self._entries.log_id, number)
        for _ in range(_NOOPS):
            made, found = False, None
            try:
                made = self._entries.store.create(name, raw)
            except StorageUnavailableError as error:
                why = error
            if not made:
                try:
                    found = self._find(number, entry)
                except CommitUnknownError:
                    raise
                except StorageUnavailableError as error:
                    why = error
            if made or (found is not None and found.id == noop.id):
                raise self._failed(number, why)
            if found is not None:
                return found.id == entry.id
        answers = why is not None and not why.passing
        silence = "the store refuses to tell" if answers else "the store doesn't answer"
        raise self._unknown(number, entry, f"{silence} ({why})") from why

    def _unknown(self, number: int, entry: Entry, why: str) -> CommitUnknownError:
        path = self._entries.path(number)
        return CommitUnknownError(
            f"nobody can tell now whether this was committed: {path} was sent at "
            f"{iso(entry.record.time_ms)}, and {why}. It is known once that is mended: a "
            f"micro-batch that comes again finds out by itself, for all else ask "
            f"Log.outcome(error), or Log.outcome(({number}, {entry.id!r}))",
            position=number, attempt=entry.id, path=path,
        )  # fmt: skip

    def _failed(
        self, number: int, why: StorageUnavailableError | None
    ) -> StorageUnavailableError:
        path = self._entries.path(number)
        return StorageUnavailableError(
            f"nothing was committed, and won't be: {path} could not be created"
            f"{'' if why is None else f' ({why})'}; commit again",
            path=path, passing=True,
        )  # fmt: skip
