"""Names of topics, directories and files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidRequestError
from sparklog.format import names


@given(st.integers(0, 2**63 - 1))
def test_base_offsets(base):
    for name in (names.log_name, names.index_name, names.timeindex_name, names.txnindex_name):
        assert names.parse_base(name(base)) == base
        assert names.parse_base(name(base) + names.SWAP) == base
    assert names.snapshot_name(7) == "00000000000000000007.snapshot"


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "1.log", "x" * 20 + ".log", "99999999999999999999.log"]
)
def test_names_without_a_base(name):
    assert names.parse_base(name) is None


@given(
    st.text("abc.-_9", min_size=1, max_size=20).filter(lambda t: t not in (".", "..")),
    st.integers(0, 2**31 - 1),
)
def test_directories_split_at_the_last_dash(topic, partition):
    name = names.partition_dir(topic, partition)
    assert names.parse_partition_dir(name) == (topic, partition)


@pytest.mark.parametrize(
    "name",
    ["_spark_metadata", ".x", "t-0.tmp", "t-", "-0", "t-00", "t-2147483648", "t-x", "ü-0",
     "t-0.0123456789abcdef0123456789abcdef-delete", "t-0.0123456789abcdef0123456789abcdef-stray"],
)  # fmt: skip
def test_other_directories(name):
    """Trap 27: LocalLogTest.testParseTopicPartitionNameForMissingSeparator."""
    assert names.parse_partition_dir(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\n"])
def test_topics_that_kafka_refuses(name):
    with pytest.raises(InvalidRequestError):
        names.check_topic(name)


def test_topics_that_kafka_takes():
    for name in ("x" * 249, "a.b_c-d", "__consumer_offsets", "..."):
        names.check_topic(name)
    assert names.collides("a.b", "a_b")
    assert not names.collides("a.b", "a-b")


@given(
    st.text("ab.-_9", min_size=1, max_size=249),
    st.text("ab.-_9", min_size=1, max_size=249),
    st.integers(0, 2**31 - 1),
    st.sampled_from(["delete", "stray", "future"]),
)
def test_retired_directories_are_known_by_their_topic(topic, other, partition, why):
    name = names.retired_dir(topic, partition, "0f" * 16, why)
    assert names.is_retired_dir_of(name, topic)
    if other[:200] != topic[:200]:
        assert not names.is_retired_dir_of(name, other)
    assert not names.is_retired_dir_of(names.partition_dir(topic, partition), topic)


def test_a_topic_is_not_the_one_whose_name_begins_so():
    gone = names.retired_dir("orders-eu", 0, "0f" * 16, "delete")
    assert not names.is_retired_dir_of(gone, "orders")
    assert not names.is_retired_dir_of(gone, "orders-eu-0")
