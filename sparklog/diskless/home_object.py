"""`sparklog.home`: the object that makes a place in a store a log's home. Its id, and when.

It is created before anything else of a log, and read back: of two who make a log in one place at
the same time the other one's counts for both. Only an empty place becomes a home, for what lies
there else (a tier's copies, somebody's files) would be mixed with the log for ever.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.clock import Clock, iso
from sparklog.diskless.names import HOME, IMPORT, TRIAL
from sparklog.errors import DataCorruptionError, InvalidRequestError, StorageUnavailableError
from sparklog.log.topic_names import new_topic_id
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.tiered.layout.object_names import parse_directory
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS
from sparklog.tiered.object_store.store import Store

_CURE: Final = (
    "restore the object from a copy of the bucket. The log id is also in the names of the objects "
    "ledger-<log id>/..."
)


@dataclass(frozen=True, slots=True)
class HomeObject:
    """What the object says. `made_ms`: when, by the clock of who made it."""

    log_id: str
    made_ms: int = 0


def read_home(store: Store) -> HomeObject | None:
    """Return what makes this place a log's home; None if it isn't one. Cost: one GET.

    Raises: DataCorruptionError; UnsupportedVersionError: a newer sparklog made it.
    """
    try:
        raw = store.get(HOME)
    except FileNotFoundError:
        return None
    path = f"{store.url}/{HOME}"
    found = unseal("home", raw, path=path, cure=_CURE)
    log_id = found.get("log_id")
    if not isinstance(log_id, str) or not log_id:
        raise DataCorruptionError(f"no home ('log_id'); {_CURE}", path=path)
    return HomeObject(log_id, int(found.get("made", 0)))


def known_home(store: Store) -> HomeObject:
    """Return what makes this place a home. Raises InvalidRequestError: it isn't one."""
    found = read_home(store)
    if found is None:
        raise InvalidRequestError(
            f"{store.url} holds no log: there is no object {HOME}. Correct the URL, or make a log "
            "there: sparklog.open(url, mode='rw')",
            path=store.url,
        )
    return found


def check_empty(store: Store) -> None:
    """Refuse a place where something lies already. Cost: two listings, if nothing does.

    Raises: InvalidRequestError, which names what is there and what to do.
    """
    held = [one.name for one in store.list(OWNERS)] or [one.name for one in store.list()]
    others = [name for name in held if not name.startswith(TRIAL) and name != HOME]
    if not others or HOME in held:  # made by somebody else just now
        return
    if IMPORT in others:
        what = "a log is being brought here (its import hasn't ended, or was interrupted)"
        cure = "wait for it, or begin it again"
    elif any(n.startswith(OWNERS) or parse_directory(n.partition("/")[0]) for n in others):
        what = f"copies of a log dir's closed segments lie there ({others[0]})"
        cure = "read them with mode='r', restore them, or give the new log a prefix of its own"
    else:
        what = f"{len(others)} other objects lie there ({others[0]})"
        cure = "give the log a prefix of its own, s3://bucket/logs"
    raise InvalidRequestError(f"{store.url} can't become a log's home: {what}; {cure}",
                              path=store.url)  # fmt: skip


def make_home(
    store: Store, clock: Clock, trial: Callable[[Store], object] | None = None
) -> HomeObject:
    """Make an empty place a log's home, or take what somebody else has made it meanwhile.

    Args: trial: raises InvalidRequestError for a store that isn't fit; `store_trial` has it.
    Raises: InvalidRequestError: it isn't empty, or the store can't create. StorageUnavailableError.
    """
    check_empty(store)
    if trial is not None:
        trial(store)
    return place_home(store, new_topic_id(), clock)


def place_home(store: Store, log_id: str, clock: Clock) -> HomeObject:
    """Make a place the home of log `log_id`; returns what lies there then, maybe somebody else's.

    Raises: InvalidRequestError: the store can't create. StorageUnavailableError.
    """
    refused: StorageUnavailableError | None = None
    try:
        create_home(store, log_id, clock)
    except StorageUnavailableError as error:
        refused = error
    found = read_home(store)  # whatever the answer was: what lies there counts, for everybody
    if found is None:
        raise refused or StorageUnavailableError(
            f"{store.url}/{HOME} was created and isn't there: does another store answer now?",
            path=store.url,
        )
    return found


def create_home(store: Store, log_id: str, clock: Clock) -> bool:
    """Make a place the home of log `log_id`; False: the store says that it is one already.

    Raises: as `Store.create`: read it back.
    """
    made_ms = clock()
    content = {"log_id": log_id, "made": made_ms, "made_at": iso(made_ms)}
    return store.create(HOME, seal("home", content))
