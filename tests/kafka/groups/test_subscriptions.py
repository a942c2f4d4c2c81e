"""What members say of themselves, as bytes: any bytes at all are read, at a cost in proportion."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.kafka.groups.subscriptions import assigned_partitions, assignment, subscribed_topics

numbers = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=5).map(sorted)


@given(st.dictionaries(st.text(max_size=20), numbers, max_size=4))
def test_an_assignment_comes_back(owned: dict[str, list[int]]) -> None:
    assert assigned_partitions(assignment(owned)) == owned


@given(st.binary(max_size=60))
def test_any_bytes_are_read(raw: bytes) -> None:
    for topic, partitions in assigned_partitions(raw).items():
        assert isinstance(topic, str) and len(partitions) <= len(raw)
    subscribed_topics(raw)


@given(st.dictionaries(st.text(max_size=9), numbers, min_size=1, max_size=3), st.data())
def test_what_is_cut_off_is_none(owned: dict[str, list[int]], data: st.DataObject) -> None:
    raw = assignment(owned)
    end = data.draw(st.integers(0, len(raw) - 5))  # before the user data, which nobody reads
    assert assigned_partitions(raw[:end]) == {}


def test_counts_that_lie_cost_nothing() -> None:
    assert assigned_partitions(b"\x00\x00\x7f\xff\xff\xff") == {}
    assert assigned_partitions(b"\x00\x00\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff") == {}
