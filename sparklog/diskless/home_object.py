"""The object `sparklog.home`: marks a prefix of a bucket as the home of a log.

The object contains the log id. It is created before any other object of a log, and read back: if
two processes create a log at the same prefix, both continue with the object that was created first.
Only an empty prefix can become a home, because other objects there (remote segments, unrelated
files) would be mixed with the log.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sparklog.clock import Clock, iso
from sparklog.diskless.ledger import missing_entry
from sparklog.diskless.ledger_evidence import entry_number_of
from sparklog.diskless.names import HOME, IMPORT, SERVICE, TRIAL, entry_name
from sparklog.diskless.quarantine import Quarantine
from sparklog.errors import DataCorruptionError, InvalidRequestError, StorageUnavailableError
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.detection import LEDGER_OBJECT
from sparklog.storage.stored_json import seal, unseal
from sparklog.tiered.layout.object_names import parse_directory
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS
from sparklog.tiered.object_store.failures import is_refused
from sparklog.tiered.object_store.store import Store

_FIX: Final = (
    "`sparklog verify {url} --repair` writes the object again with the log id that the names of "
    "the objects ledger-<log id>/... contain"
)
_LOG_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # it is part of object names


@dataclass(frozen=True, slots=True)
class HomeObject:
    """The content of the home object. `made_ms` is the creation time by the creator's clock."""

    log_id: str
    made_ms: int = 0


def read_home(store: Store) -> HomeObject | None:
    """Return the home object of this prefix, or None.

    Cost: a GET.

    Raises:
        DataCorruptionError: An object is damaged.
        UnsupportedVersionError: Written by a newer sparklog.
    """
    try:
        raw = store.get(HOME)
    except FileNotFoundError:
        return None
    path, cure = f"{store.url}/{HOME}", _FIX.format(url=store.url)
    content = unseal("home", raw, path=path, cure=cure)
    log_id = content.get("log_id") if isinstance(content, dict) else None
    if not isinstance(log_id, str) or not _LOG_ID.fullmatch(log_id):
        raise DataCorruptionError(f"the object contains no log id; {cure}", path=path)
    return HomeObject(log_id, int(content.get("made", 0)))


def known_home(store: Store) -> HomeObject:
    """Return the home object of this prefix.

    Raises:
        InvalidRequestError: There is no log here.
        DataCorruptionError: The object is missing or damaged.
    """
    home = read_home(store)
    if home is None:
        check_not_missing(store)
        raise InvalidRequestError(
            f"{store.url} contains no log: the object {HOME} does not exist. Correct the URL, or "
            "create a log there: sparklog.open(url, mode='rw')",
            path=store.url,
        )
    return home


def log_ids(store: Store) -> dict[str, str]:
    """Return {log id: one of its objects} for all logs with objects below this prefix.

    Cost: two listings.
    """
    by_id: dict[str, str] = {}
    for name in _log_objects(store):
        match = LEDGER_OBJECT.fullmatch(name)
        if match is not None:
            by_id.setdefault(match[1], name)
    return by_id


def _log_objects(store: Store) -> Iterator[str]:
    """Yield the objects ledger-*, state-* and staged-*."""
    # "sta" includes state-* and staged-*, which saves a listing.
    return (one.name for prefix in ("ledger-", "sta") for one in store.list(prefix))


def check_not_missing(store: Store) -> None:
    """Raise DataCorruptionError if the home object of an existing log is missing.

    Call it after the home object was not found. A log that is being imported has no home object
    yet. If the ledger is missing as well, the lease objects of a service still show that segments
    belong to a log: only a service merges data into segments, and an archive has no service.
    Cost: two listings, and a third if they find no object of a log; two more GETs if any listing
        finds such an object.
    """
    proof, remedy = next(iter(log_ids(store).values()), None), _FIX.format(url=store.url)
    if proof is None:
        proof = next((one.name for one in store.list(SERVICE)), None)
        remedy = "the ledger is missing as well, so restore all objects from a copy of the bucket"
    # HOME: another process may have created the log after this process looked for the object.
    if proof is None or any(_are_there(store, IMPORT, HOME)):
        return
    raise DataCorruptionError(
        f"the object {HOME} is missing, but {proof} shows that a log is stored here; {remedy}",
        path=f"{store.url}/{HOME}",
    )


def _are_there(store: Store, *names: str) -> list[bool]:
    """Return for each name whether the object exists.

    Raises:
        StorageUnavailableError: A request failed, so existence is unknown.
    """
    raws = store.get_many(names)
    for raw in raws:
        if isinstance(raw, Exception) and not isinstance(raw, FileNotFoundError):
            raise raw
    return [isinstance(raw, bytes) for raw in raws]


def check_new(store: Store, log_id: str) -> None:
    """Raise DataCorruptionError if a log without entries is not a new log.

    Objects of another log show that `sparklog.home` names the wrong log. Objects of this log show
    that its ledger was lost: a topic has an owner object, and entries precede states and staged
    objects. Entry 0 may be created in the meantime, so it is requested after the listings, and is
    no evidence itself.
    Cost: three listings; another GET if they find objects of a log.

    Raises:
        DataCorruptionError: See above.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    own, others, lost = entry_name(log_id, 0), list[str](), list[str]()
    for name in _log_objects(store):
        match = LEDGER_OBJECT.fullmatch(name)
        if match is not None and match[1] != log_id:
            others.append(name)
        elif name != own and entry_number_of(log_id, name) is not None:
            lost.append(name)
    lost += [stored.name for stored in store.list(OWNERS)]
    if not (others or lost) or any(_are_there(store, own)):
        return
    if others:
        raise DataCorruptionError(
            f"the object names log {log_id}, which has no ledger entries, but {others[0]} belongs "
            f"to another log; {_FIX.format(url=store.url)}",
            path=f"{store.url}/{HOME}",
        )
    raise missing_entry(f"{store.url}/{own}", f"{lost[0]} was created after it")


def repairable_log_id(store: Store) -> str:
    """Return the id of the only log with a ledger in this place.

    Cost: two listings and a GET per log.

    Raises:
        InvalidRequestError: There is none, or several, or a log is being imported.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    path = f"{store.url}/{HOME}"
    ids = sorted(log_ids(store))
    is_imported, *have_entries = _are_there(store, IMPORT, *(entry_name(each, 0) for each in ids))
    if is_imported:
        raise InvalidRequestError(
            f"{store.url}: a log is being imported here; repeat the import to complete it",
            path=path,
        )
    with_entries = [each for each, has_entry in zip(ids, have_entries, strict=True) if has_entry]
    if len(with_entries) == 1:
        return with_entries[0]
    contents = (
        f"the ledgers of {len(with_entries)} logs ({', '.join(with_entries)})"
        if with_entries
        else "no ledger"
    )
    raise InvalidRequestError(
        f"{path} can't be written again, because {store.url} contains {contents}. Restore the "
        "object from a copy of the bucket or from an older object version",
        path=path,
    )


def repair_home(store: Store, clock: Clock, quarantine: Quarantine) -> str:
    """Write the home object again; return a sentence that reports this.

    The time at which the log was made is lost; the object has the time of the repair instead.
    Raises the errors of `repairable_log_id`.
    """
    log_id = repairable_log_id(store)
    kept = quarantine.keep(HOME)
    if kept is None:
        place_home(store, log_id, clock)
        return f"{store.url}/{HOME} written again for log {log_id}"
    store.put(HOME, _home_bytes(log_id, clock))
    return f"{store.url}/{HOME} written again for log {log_id}; the old object is {kept}"


def check_empty(store: Store) -> None:
    """Raise an error if objects are stored at this prefix.

    Cost: four listings for an empty prefix.

    Raises:
        InvalidRequestError: Other objects are stored here. The message names an object and a
            remedy.
        DataCorruptionError: A log is stored here, and its home object is missing.
    """
    # A large archive is recognized by its few owner objects, without listing its segments.
    held = [stored.name for stored in store.list(OWNERS)] or [
        stored.name for stored in store.list()
    ]
    others = [name for name in held if not name.startswith(TRIAL) and name != HOME]
    if not others or HOME in held:  # another process has just created it
        return
    if IMPORT not in others:
        check_not_missing(store)
    if IMPORT in others:
        contents = "a log is being imported here (its import hasn't ended, or was interrupted)"
        remedy = "wait for the import, or repeat it"
    elif any(n.startswith(OWNERS) or parse_directory(n.partition("/")[0]) for n in others):
        contents = f"copies of a log dir's closed segments are stored there ({others[0]})"
        remedy = "read them with mode='r', restore them, or choose an empty prefix for the new log"
    else:
        contents = f"{len(others)} other objects are stored there ({others[0]})"
        remedy = "choose an empty prefix for the log, for example s3://bucket/logs"
    raise InvalidRequestError(f"{store.url} can't become a log's home: {contents}; {remedy}",
                              path=store.url)  # fmt: skip


def make_home(
    store: Store, clock: Clock, trial: Callable[[Store], object] | None = None
) -> HomeObject:
    """Create the home object at an empty prefix, or return the object of a faster process.

    Args:
        trial: Raises InvalidRequestError for an unsuitable store; see `capability_check`.

    Raises:
        InvalidRequestError: The prefix is not empty, or the store is unsuitable.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    check_empty(store)
    if trial is not None:
        trial(store)
    return place_home(store, new_topic_id(), clock)


def place_home(store: Store, log_id: str, clock: Clock) -> HomeObject:
    """Create the home object for log `log_id` if there is none; return the stored object.

    Raises:
        InvalidRequestError: The store has no conditional create.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    refused: StorageUnavailableError | None = None
    try:
        create_home(store, log_id, clock)
    except StorageUnavailableError as error:
        refused = error
    # Whatever the answer to create was, the stored object counts for all processes.
    home = read_home(store)
    if home is None:
        raise refused or StorageUnavailableError(
            f"{store.url}/{HOME} was created, but a GET does not find it: check that the URL still "
            "leads to the same store",
            path=store.url,
        )
    return home


def create_home(store: Store, log_id: str, clock: Clock) -> bool:
    """Request the creation of the home object for log `log_id`.

    Returns True for "created" and False for "exists". Raises the errors of `Store.create`. After
    any of these answers the object has to be read back.
    """
    return store.create(HOME, _home_bytes(log_id, clock))


def write_refusal(store: Store, log_id: str, clock: Clock) -> StorageUnavailableError | None:
    """Return the error with which the store refuses writes to this home, or None.

    Requests the creation of the home object, which exists: a store answers HTTP 412 to credentials
    that may write, 403 to others, and makes no change. If another process deleted the object a
    moment ago, it is written again, as by a repair.
    Cost: a conditional PUT.

    Raises:
        StorageUnavailableError: The store did not answer.
    """
    try:
        create_home(store, log_id, clock)
    except StorageUnavailableError as error:
        if not is_refused(error):
            raise
        return error
    return None


def _home_bytes(log_id: str, clock: Clock) -> bytes:
    made_ms = clock()
    return seal("home", {"log_id": log_id, "made": made_ms, "made_at": iso(made_ms)})
