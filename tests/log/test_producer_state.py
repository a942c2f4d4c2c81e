"""ProducerStateManagerTest's behaviours, in memory."""

from collections.abc import Iterable

import pytest

from sparklog.errors import FencedError, InvalidRequestError, OutOfOrderSequenceError
from sparklog.format.batch import unpack_header
from sparklog.format.control import read_marker
from sparklog.format.scan import Table, rebase, scan
from sparklog.log.producer_state import ProducerState
from tests.logdir.partitions import T0, batch, marker, transactional

MAX = 2**31 - 1
DAY_MS = 86_400_000


def table(data: bytes, at: int = 0) -> Table:
    found = scan(data, path="t").table
    found["base_offset"] += at
    found["last_offset"] += at
    return found


def sent(epoch: int, sequence: int, *, count: int = 1, pid: int = 1, at: int = T0) -> bytes:
    return batch(*["v"] * count, at=at, producer=(pid, epoch, sequence))


def applied(batches: Iterable[bytes]) -> ProducerState:
    state = ProducerState(0)
    for data in batches:
        rows = table(data, state.end)
        header = unpack_header(data, 0)

        def read(row: object, data: bytes = data, offset: int = state.end) -> object:
            found = read_marker(data, 0, unpack_header(data, 0), path="t")
            return None if found is None else _at(found, offset)

        assert header.count
        state.apply(rows, read)  # type: ignore[arg-type]
    return state


def _at(found: object, offset: int) -> object:
    from dataclasses import replace

    return replace(found, offset=offset)  # type: ignore[type-var]


def judge(state: ProducerState, data: bytes) -> tuple[int, int] | None:
    return state.check(table(data), where="t-0")


def test_sequences_follow() -> None:
    state = applied([sent(0, 0, count=3)])
    assert judge(state, sent(0, 3)) is None
    for wrong in (2, 4, 100):
        with pytest.raises(OutOfOrderSequenceError, match=f"sequence {wrong} after 2"):
            judge(state, sent(0, wrong))
        assert judge(state, sent(0, 0, pid=2)) is None  # started again under a new id


def test_sequences_wrap() -> None:
    state = applied([sent(0, MAX - 1, count=3)])  # MAX - 1, MAX, 0
    assert state.entries()[0].last_sequence == 0
    assert judge(state, sent(0, MAX - 1, count=3)) == (0, 3)
    assert judge(state, sent(0, 1)) is None
    at_end = applied([sent(0, MAX)])
    assert judge(at_end, sent(0, 0)) is None
    with pytest.raises(OutOfOrderSequenceError):
        judge(at_end, sent(0, 1))


def test_epochs() -> None:
    state = applied([sent(3, 0)])
    with pytest.raises(FencedError, match="epoch 2"):
        judge(state, sent(2, 1))
    assert judge(state, sent(3, 1)) is None  # once that one is stopped, the newer one goes on
    assert judge(state, sent(4, 0)) is None
    with pytest.raises(OutOfOrderSequenceError, match=r"starts epoch 4.*restart it"):
        judge(state, sent(4, 1))
    assert judge(state, sent(0, 0, pid=2)) is None  # a new id
    newer = applied([sent(3, 0), sent(4, 0)])
    with pytest.raises(FencedError):
        judge(newer, sent(3, 0))  # the old epoch's batches are forgotten, it is no duplicate


def test_an_unknown_producer_takes_any_sequence() -> None:
    assert judge(ProducerState(0), sent(5, 77)) is None


def test_batches_of_one_append_follow_each_other() -> None:
    good = sent(0, 0) + sent(0, 1)
    assert judge(ProducerState(0), good) is None
    with pytest.raises(OutOfOrderSequenceError):
        judge(ProducerState(0), sent(0, 0) + sent(0, 2))


def test_one_append_of_several_producers() -> None:
    """UnifiedLogTest.testMultipleProducersWithDuplicatesInSingleAppend."""
    first = b""
    for offset, part in enumerate((sent(0, 0, pid=1), sent(0, 0, pid=2), sent(0, 1, pid=1))):
        own = bytearray(part)
        rebase(own, offset, 0)
        first += own
    assert judge(ProducerState(0), first) is None
    state = applied([sent(0, 0, pid=1), sent(0, 0, pid=2), sent(0, 1, pid=1)])
    assert judge(state, first) == (0, 3)  # its last batch tells for all
    assert judge(state, sent(0, 1, pid=2) + sent(0, 2, pid=1)) is None
    with pytest.raises(OutOfOrderSequenceError, match="producer 2 sent sequence 2 after 0"):
        judge(state, sent(0, 2, pid=1) + sent(0, 2, pid=2))
    with pytest.raises(OutOfOrderSequenceError, match="producer 1 sent sequence 2 after 2"):
        judge(state, sent(0, 2, pid=1) + sent(0, 2, pid=1))


def test_a_markers_epoch_counts_too() -> None:
    state = applied([transactional(sent(0, 0)), marker(1, producer_id=1, epoch=1)])
    with pytest.raises(FencedError):
        judge(state, sent(0, 1))
    assert state.entries()[0].producer_epoch == 1
    assert state.entries()[0].last_offset == -1


def test_plain_data_inside_a_transaction_is_refused() -> None:
    state = applied([transactional(sent(0, 0))])
    with pytest.raises(InvalidRequestError, match="open transaction; end it first"):
        judge(state, sent(0, 1))
    assert judge(state, transactional(sent(0, 1))) is None
    ended = applied([transactional(sent(0, 0)), marker(1, producer_id=1)])
    assert judge(ended, sent(0, 1)) is None


def test_the_last_stable_offset() -> None:
    begun = [sent(0, 0), *(transactional(sent(0, 0, pid=pid)) for pid in (2, 3))]
    assert applied(begun).last_stable_offset() == 1
    state = applied([*begun, marker(1, producer_id=2)])
    assert state.last_stable_offset() == 2


def test_expiry_is_by_record_time_and_spares_open_transactions() -> None:
    state = applied([sent(0, 0, pid=1), transactional(sent(0, 0, pid=2))])
    state.expire(T0 + DAY_MS - 1)
    assert len(state) == 2
    state.expire(T0 + DAY_MS)
    assert [e.producer_id for e in state.entries()] == [2]


def test_snapshots_bring_back_the_newest_batch() -> None:
    state = applied([sent(0, n) for n in range(7)])
    restored = ProducerState(7, state.entries(), now=T0)
    assert judge(restored, sent(0, 6)) == (6, 7)
    with pytest.raises(OutOfOrderSequenceError):
        judge(restored, sent(0, 5))
    assert judge(state, sent(0, 2)) == (2, 3)
    expired = ProducerState(7, state.entries(), now=T0 + DAY_MS)
    assert len(expired) == 0
