"""Server-side assignors of the consumer protocol. Pure functions.

`uniform` gives all members equally many partitions and preserves existing assignments. `range`
gives each member of a topic a contiguous run of its partitions, in member order, so that topics
with equally many partitions are assigned alike; existing assignments are not preserved. Source:
UniformAssignor, RangeAssignor (Kafka 4.1). These functions have the same guarantees, but may choose
other partitions.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final
from uuid import UUID

Partitions = frozenset[tuple[UUID, int]]
"""(topic id, partition)"""
Subscriptions = Mapping[str, frozenset[UUID]]
"""{member: ids of the topics that it reads}, in member order."""
Counts = Mapping[UUID, int]
"""{topic id: number of partitions}"""
Current = Mapping[str, Partitions]
Assignor = Callable[[Subscriptions, Counts, Current], dict[str, Partitions]]


def uniform(
    subscriptions: Subscriptions, counts: Counts, current: Current
) -> dict[str, Partitions]:
    """Assign as evenly as the subscriptions allow, moving as few partitions as possible.

    Cost: sorting the partitions if all members read the same topics.
    """
    owned: dict[str, set[tuple[UUID, int]]] = {member: set() for member in subscriptions}
    read = sorted(set().union(*subscriptions.values()) & counts.keys())
    everything = [(topic, n) for topic in read for n in range(counts[topic])]
    there = set(everything)
    for member, topics in subscriptions.items():
        kept = {p for p in current.get(member, ()) if p[0] in topics and p in there}
        owned[member] = kept
        there -= kept
    free = [partition for partition in everything if partition in there]
    if len(set(subscriptions.values())) == 1:
        _fill(owned, free, total=len(everything))
        return {member: frozenset(partitions) for member, partitions in owned.items()}
    readers: dict[UUID, list[str]] = {}
    for member, topics in subscriptions.items():
        for topic in topics:
            readers.setdefault(topic, []).append(member)
    for partition in sorted(free, key=lambda p: (len(readers.get(p[0], ())), p)):
        able = readers.get(partition[0])
        if able:
            owned[min(able, key=lambda member: len(owned[member]))].add(partition)
    _even_out(owned, subscriptions)
    return {member: frozenset(partitions) for member, partitions in owned.items()}


def _fill(
    owned: dict[str, set[tuple[UUID, int]]], free: list[tuple[UUID, int]], *, total: int
) -> None:
    """Balance the members, until their numbers of partitions differ by at most 1.

    The extra partitions stay with the members that own most.
    """
    size, extra = divmod(total, len(owned))
    for member in sorted(owned, key=lambda m: -len(owned[m])):
        wanted = size + (extra > 0)
        extra -= extra > 0
        surplus = sorted(owned[member])[wanted:]
        owned[member] -= set(surplus)
        free += surplus
    left, extra = iter(free), total % len(owned) - sum(len(p) > size for p in owned.values())
    for partitions in owned.values():
        wanted = size
        if len(partitions) <= size and extra > 0:
            wanted, extra = size + 1, extra - 1
        partitions.update(islice(left, max(wanted - len(partitions), 0)))


def _even_out(owned: dict[str, set[tuple[UUID, int]]], subscriptions: Subscriptions) -> None:
    """Move partitions between members until the counts differ by at most 1."""
    while True:
        by_size = sorted(owned, key=lambda member: len(owned[member]))
        for rich in reversed(by_size):
            found = next(
                (
                    (poor, partition)
                    for poor in by_size
                    if len(owned[rich]) - len(owned[poor]) > 1
                    for partition in owned[rich]
                    if partition[0] in subscriptions[poor]
                ),
                None,
            )
            if found is not None:
                owned[rich].remove(found[1])
                owned[found[0]].add(found[1])
                break
        else:
            return


def by_range(
    subscriptions: Subscriptions, counts: Counts, current: Current
) -> dict[str, Partitions]:
    """Assign the partitions of each topic in runs to the topic's readers, sorted by name."""
    owned: dict[str, set[tuple[UUID, int]]] = {member: set() for member in subscriptions}
    for topic, count in counts.items():
        readers = sorted(member for member, topics in subscriptions.items() if topic in topics)
        at = 0
        for place, member in enumerate(readers):
            size = count // len(readers) + (place < count % len(readers))
            owned[member] |= {(topic, number) for number in range(at, at + size)}
            at += size
    return {member: frozenset(partitions) for member, partitions in owned.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": by_range}
"""Assignors by name; the first one is the default."""
