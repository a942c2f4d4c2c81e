"""Objects that prove that a missing ledger entry existed.

An entry is created before anything that depends on it, so these objects exist only after the entry:

    ledger-<log id>/<n>       entries 0..n, because entries are created in order
    state-<log id>/<n>        entry n: the state is written after it
    staged-<log id>/<n>/...   entry n: the head of the log when staging began
    service/<t>, asked/<t>    the entry in which a service took term t
    <topic>-<p>-<topic id>/   the entries that committed the offsets of a segment
    owners/<topic id>         of a log without entries: the entry that created the topic

The position of a reader group is no proof, because a group may commit any offset.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from sparklog.common import TopicPartition
from sparklog.diskless.names import (
    ASKED,
    SERVICE,
    ledger_prefix,
    parse_staged,
    parse_state,
)
from sparklog.diskless.state import DisklessState
from sparklog.tiered.layout.object_names import parse_directory, parse_log, parse_manifest
from sparklog.tiered.layout.topic_owners import PREFIX as OWNERS

TERMS_MAX: Final = 2**32
"""Terms grow by one, so an object with a larger term is not from a service of this log."""
_DIGITS: Final = 20


class Evidence(NamedTuple):
    """An object that proves a missing entry.

    Attributes:
        number: The number of the entry. None if the object proves only that later entries existed.
        what: The proven fact, as a clause for messages.
        term: The term that the object proves.
        key: A partition.
        end: The end offset of this partition that the object proves.
    """

    name: str
    number: int | None
    what: str
    term: int = 0
    key: TopicPartition | None = None
    end: int = 0


def evidence_beyond(state: DisklessState, names: Iterable[str]) -> Iterator[Evidence]:
    """Yield the objects that prove entries after `state`.

    A state object proves its entry only if its content confirms its name (`proves_entry`).

    Args:
        state: the log as of its head.
        names: all objects of the log, listed before the head was read.
    """
    partitions = {
        (topic.id, partition): TopicPartition(name, partition)
        for name, topic in state.log.topics.items()
        for partition in topic.dirs
    }
    for name in names:
        if state.number < 0 and name.startswith(OWNERS):
            yield Evidence(name, 0, "a topic was created")
        number = entry_number_of(state.log_id, name)
        if number is not None:
            # The names are older than the head, so an entry that another writer has just created is
            # no evidence of a loss.
            if number > state.number:
                yield Evidence(name, number, f"entry {number} was created")
            continue
        term = _term_of(name)
        if term is not None:
            if state.term < term < TERMS_MAX:
                yield Evidence(name, None, f"a service took term {term} of the log", term)
            continue
        directory, _, rest = name.partition("/")
        place = parse_directory(directory)
        key = None if place is None else partitions.get((place.topic_id, place.partition))
        if key is not None:
            end = _least_end(rest)
            if end > state.log.ends[key]:
                fact = f"records of {key} below offset {end} were committed"
                yield Evidence(name, None, fact, key=key, end=end)


def entry_number_of(log_id: str, name: str) -> int | None:
    """Return the number of the newest entry that an object's name proves, or None."""
    prefix = ledger_prefix(log_id)
    if name.startswith(prefix):
        rest = name.removeprefix(prefix)
        return int(rest) if len(rest) == _DIGITS and rest.isdecimal() else None
    state = parse_state(log_id, name)
    if state is not None:
        return state
    staged = parse_staged(log_id, name)
    return staged or None  # in an empty log the number is 0 as well


def _term_of(name: str) -> int | None:
    for prefix in (SERVICE, ASKED):
        rest = name.removeprefix(prefix)
        if name.startswith(prefix) and rest.isdecimal():
            return int(rest)
    return None


def _least_end(name: str) -> int:
    """Return the end offset that a partition has at least, as the name of an object shows.

    The object is a segment's log or manifest; other names give 0.
    """
    manifest = parse_manifest(name)
    if manifest is not None:
        return manifest.end
    log = parse_log(name)
    return 0 if log is None else log[0] + 1
