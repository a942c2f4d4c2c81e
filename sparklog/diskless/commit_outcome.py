"""Resolves commits with an unknown outcome, by the number and the attempt id of their entry."""

from sparklog.diskless.entries import Entry, NoOpRecord, encode, new_attempt_id
from sparklog.diskless.entry_creation import EntryCreator
from sparklog.diskless.ledger import Head
from sparklog.errors import InvalidRequestError


def resolve_commit(head: Head, creator: EntryCreator, number: int, attempt: str) -> Entry | None:
    """Return entry `number` if it is this attempt. None: it is not, and never will be.

    If there is no such entry yet, a no-op takes its number, so that the answer is final.
    Raises: InvalidRequestError: no commit was ever tried with this number; StorageUnavailableError.
    Cost: a GET; also a PUT if the number was free.
    """
    while True:
        entry = head.entries.find(number)
        if entry is not None:
            return entry if entry.id == attempt else None
        state = head.follow()
        if number > state.next_number or number < 0:
            raise InvalidRequestError(
                f"{head.entries.path(number)} can't have been tried: the log ends at entry "
                f"{state.number}. The error belongs to another log, or this log is an older copy"
            )
        if number == state.next_number:
            record = NoOpRecord(time_ms=state.log.time_ms, epoch=state.log.epoch)
            noop = Entry(id=new_attempt_id(), prev=state.entry_id, record=record)
            creator.create(number, noop, encode(number, noop))
