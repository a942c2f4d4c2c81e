"""Index entries: the rule per batch, lookups, checks, aborted transactions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format import index
from sparklog.format.index import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, IndexState
from sparklog.format.scan import BATCH_DTYPE


def batches(*made: tuple[int, int, int], start: int = 0) -> np.ndarray:
    """(last offset, size, max timestamp) each."""
    table = np.zeros(len(made), BATCH_DTYPE)
    for row, (last, size, stamp) in zip(table, made, strict=True):
        row["last_offset"], row["size"], row["max_timestamp"] = last, size, stamp
        row["position"] = start
        start += size
    return table


def entries(data: bytes, dtype) -> list[tuple[int, ...]]:
    return np.frombuffer(data, dtype).tolist()


def by_hand(table, base, interval, state):
    """LogSegment.append of Kafka 4.1, line by line."""
    since, top, top_at, last = (
        state.bytes_since_entry, state.max_timestamp, state.max_offset, state.last_timestamp,
    )  # fmt: skip
    offsets, times = [], []
    for row in table:
        if row["max_timestamp"] > top:
            top, top_at = int(row["max_timestamp"]), int(row["last_offset"])
        if since > interval:
            offsets.append((int(row["last_offset"]) - base, int(row["position"])))
            if top > last:
                times.append((top, top_at - base))
                last = top
            since = 0
        since += int(row["size"])
    return offsets, times, (since, top, top_at, last)


made_batches = st.lists(
    st.tuples(st.integers(1, 9), st.integers(61, 3000), st.integers(-1, 40)), max_size=40
).map(
    lambda made: [
        (sum(step for step, _, _ in made[: i + 1]) + 99, size, stamp)
        for i, (_, size, stamp) in enumerate(made)
    ]
)


@given(made_batches, st.sampled_from([0, 100, 4096]), st.integers(0, 40))
def test_the_rule_in_any_grouping(made, interval, cut):
    """Traps 1-3: last offset, one entry a batch, earliest batch of the maximum."""
    table = batches(*made)
    offsets, times, final = by_hand(table, 100, interval, IndexState())
    index_bytes, time_bytes, state = index.index_entries(table, 100, interval, IndexState())
    assert entries(index_bytes, OFFSET_ENTRY) == offsets
    assert entries(time_bytes, TIME_ENTRY) == times
    if made:
        assert (
            state.bytes_since_entry, state.max_timestamp, state.max_offset, state.last_timestamp,
        ) == final  # fmt: skip
    one = index.index_entries(table[:cut], 100, interval, IndexState())
    two = index.index_entries(table[cut:], 100, interval, one[2])
    assert (one[0] + two[0], one[1] + two[1], two[2]) == (index_bytes, time_bytes, state)


def test_first_batch_is_never_indexed_and_the_bound_is_strict():
    table = batches((0, 4096, 1), (1, 1, 2), (2, 10, 3))
    made, times, state = index.index_entries(table, 0, 4096, IndexState())
    assert entries(made, OFFSET_ENTRY) == [(2, 4097)]
    assert entries(times, TIME_ENTRY) == [(3, 2)]
    assert state.bytes_since_entry == 10


def test_final_time_entry():
    """Trap 6; nothing if the maximum is in the index already."""
    _, _, state = index.index_entries(batches((5, 100, 7), (9, 100, 7)), 5, 4096, IndexState())
    made, after = index.final_time_entry(5, state)
    assert entries(made, TIME_ENTRY) == [(7, 0)]
    assert index.final_time_entry(5, after) == (b"", after)
    assert index.final_time_entry(5, IndexState()) == (b"", IndexState())


def test_an_offset_out_of_reach():
    """Trap 10: LogSegmentTest.testAppendForLogSegmentOffsetOverflowException."""
    with pytest.raises(InvalidRequestError, match="roll first"):
        index.index_entries(batches((2**31, 100, 7)), 0, 4096, IndexState())
    far = batches((2**31, 100, 7), (2**31 + 1, 100, 8))
    made, _, _ = index.index_entries(far, 2**31, 0, IndexState())  # a segment that begins there
    assert entries(made, OFFSET_ENTRY) == [(1, 100)]


def test_sizes_are_multiples():
    with pytest.raises(DataCorruptionError, match="i at byte 8") as caught:
        index.parse_entries(bytes(13), OFFSET_ENTRY, path="i")
    assert caught.value.position == 8
    assert len(index.parse_entries(b"", TIME_ENTRY, path="i")) == 0


def txns(*made):
    return np.frombuffer(b"".join(index.txn_entry(*m) for m in made), TXN_ENTRY)


def test_aborted_transactions():
    """TransactionIndexTest.testCollectAbortedTransactions, testAbortedTxnSerde."""
    some = txns((0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40))
    everything = [(0, 0, 10), (1, 5, 15), (2, 18, 35), (3, 32, 50)]
    assert index.collect_aborted(some, 0, 100) == (everything, False)
    assert index.collect_aborted(some, 0, 32) == (everything[:3], True)
    assert index.collect_aborted(some, 0, 35) == (everything, True)
    assert index.collect_aborted(some, 10, 35) == (everything, True)
    assert index.collect_aborted(some, 11, 35) == (everything[1:], True)
    assert index.collect_aborted(some, 20, 41) == (everything[2:], False)


def test_aborted_transactions_are_checked():
    """TransactionIndexTest.testLastOffsetMustIncrease."""
    index.check_txn_entries(txns((0, 0, 10, 11), (1, 5, 15, 13)), 0, path="x")
    with pytest.raises(DataCorruptionError, match="x at byte 34"):
        index.check_txn_entries(txns((0, 0, 10, 11), (1, 5, 10, 13)), 0, path="x")
    with pytest.raises(DataCorruptionError, match="base offset 11"):
        index.check_txn_entries(txns((0, 0, 10, 11)), 11, path="x")
    bad = txns((0, 0, 10, 11)).copy()
    bad["version"] = 1
    with pytest.raises(DataCorruptionError, match="x at byte 0"):
        index.check_txn_entries(bad, 0, path="x")
