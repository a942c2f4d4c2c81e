"""What became of a commit of which nobody could tell: an entry's number and attempt are enough."""

from sparklog.diskless.entries import Entry, NoOpRecord, encode, new_attempt_id
from sparklog.diskless.entry_creation import EntryCreator
from sparklog.diskless.ledger import Head
from sparklog.errors import InvalidRequestError


def resolve_commit(head: Head, creator: EntryCreator, number: int, attempt: str) -> Entry | None:
    """Return entry `number` if it is this attempt; None: it isn't, and never will be.

    Where there is no such entry yet a no-op takes its place, so that the answer holds for ever.
    Raises: InvalidRequestError: no commit was ever tried there. StorageUnavailableError.
    Cost: a GET; a PUT, where the number was still free.
    """
    while True:
        found = head.entries.find(number)
        if found is not None:
            return found if found.id == attempt else None
        state = head.follow()
        if number > state.next_number or number < 0:
            raise InvalidRequestError(
                f"{head.entries.path(number)} can't have been tried: the log ends at entry "
                f"{state.number}. Was it another log, or is this one an older copy?"
            )
        if number == state.next_number:
            record = NoOpRecord(time_ms=state.log.time_ms, epoch=state.log.epoch)
            noop = Entry(id=new_attempt_id(), prev=state.entry_id, record=record)
            creator.create(number, noop, encode(number, noop))
