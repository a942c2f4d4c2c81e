"""Server-side assignors: everything is assigned once, evenly, and little of it moves."""

import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.kafka.groups.assignors import ASSIGNORS, Partitions, by_range, uniform

TOPICS = [UUID(int=n) for n in range(1, 5)]
counts_of = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), max_size=4)
members_of = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(7)]), st.frozensets(st.sampled_from(TOPICS)), min_size=1
)


def everything(counts: dict[UUID, int]) -> set[tuple[UUID, int]]:
    return {(topic, n) for topic, count in counts.items() for n in range(count)}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(subscriptions=members_of, counts=counts_of)
def test_what_somebody_reads_is_assigned_once_to_who_reads_it(
    name: str, subscriptions: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    target = ASSIGNORS[name](subscriptions, counts, {})
    assert target.keys() == subscriptions.keys()
    assigned = [p for partitions in target.values() for p in partitions]
    read = frozenset().union(*subscriptions.values())
    assert sorted(assigned) == sorted(p for p in everything(counts) if p[0] in read)
    assert all(p[0] in subscriptions[m] for m, parts in target.items() for p in parts)


@given(members=st.lists(st.integers(1, 9), min_size=1, max_size=6), counts=counts_of)
def test_uniform_is_even_and_moves_no_more_than_it_must(
    members: list[int], counts: dict[UUID, int]
) -> None:
    """Groups that grow and shrink, whose members read the same."""
    current: dict[str, Partitions] = {}
    total = sum(counts.values())
    for size in members:
        subscriptions = {f"m{n}": frozenset(counts) for n in range(size)}
        target = uniform(subscriptions, counts, current)
        sizes = sorted(map(len, target.values()))
        assert sizes[-1] - sizes[0] <= 1
        assert sum(sizes) == total
        if size <= len(current):  # those that stay keep all that they had
            assert all(current[m] <= target[m] or len(current[m]) > sizes[-1] for m in target)
        else:
            kept = sum(len(current[m] & target[m]) for m in current)
            gained = sum(len(target[m]) for m in target if m not in current)
            assert kept == total - gained or not current
        current = target


@given(subscriptions=members_of, counts=counts_of)
def test_uniform_is_as_even_as_subscriptions_allow(
    subscriptions: dict[str, frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    target = uniform(subscriptions, counts, {})
    for rich, partitions in target.items():
        for poor, topics in subscriptions.items():
            could_move = any(p[0] in topics for p in partitions)
            assert not could_move or len(partitions) - len(target[poor]) <= 1, (rich, poor)
    assert uniform(subscriptions, counts, target) == target


def test_range_assigns_topics_of_one_size_alike() -> None:
    counts = {TOPICS[0]: 5, TOPICS[1]: 5}
    target = by_range({"b": frozenset(counts), "a": frozenset(counts)}, counts, {})
    numbers = {m: [{n for t, n in parts if t == topic} for topic in counts]
               for m, parts in target.items()}  # fmt: skip
    assert numbers == {"a": [{0, 1, 2}, {0, 1, 2}], "b": [{3, 4}, {3, 4}]}


def test_many_partitions_and_members_take_no_time() -> None:
    counts = dict.fromkeys(TOPICS, 2500)
    current: dict[str, Partitions] = {}
    began = time.process_time()
    for size in (1, 2, 50, 49):
        current = uniform({f"m{n}": frozenset(counts) for n in range(size)}, counts, current)
    assert time.process_time() - began < 30
