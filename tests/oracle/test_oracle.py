"""The judge itself: what Kafka says of a log that Kafka wrote, and of a damaged one."""

import pytest

from tests.oracle import Oracle, OracleError


@pytest.fixture
def filled(oracle: Oracle, tmp_path):
    directory = tmp_path / "t-0"
    config = {"internal.segment.bytes": 10_000}
    made = oracle.call(
        "fill", dir=directory, records=2000, keys=50, value_bytes=64, codec="lz4", config=config
    )
    assert made["end"] == 2000
    return directory


def test_a_log_of_kafkas_own_is_left_alone(oracle, filled):
    opened = oracle.open(filled, clean=True, records=True)
    assert (opened.start, opened.end, opened.count) == (0, 2000, 2000)
    assert opened.untouched
    assert [r.offset for r in opened.records] == list(range(2000))
    assert len(opened.records[0].value) == 64
    assert opened.epochs == [(0, 0)]
    assert len(opened.segments) > 1
    assert {b["codec"] for b in opened.batches} == {"lz4"}


def test_an_unclean_stop_cuts_a_torn_tail(oracle, filled):
    active = max(filled.glob("*.log"))
    with active.open("ab") as file:
        file.write(b"\0" * 40)
    opened = oracle.open(filled, clean=False)
    assert opened.end == 2000
    assert active.name in opened.changed


def test_time_look_up(oracle, filled):
    assert oracle.time(filled, [1_700_000_000_000, 1_700_000_000_777, 2_000_000_000_000]) == [
        (0, 1_700_000_000_000),
        (777, 1_700_000_000_777),
        None,
    ]


def test_the_cleaner_keeps_the_last_of_each_key(oracle, filled):
    cleaned = oracle.clean(filled, now_ms=1_800_000_000_000)
    assert cleaned.next_dirty <= 2000
    assert cleaned.count < 2000
    keys = [r.key for r in cleaned.records if r.offset < cleaned.next_dirty]
    assert len(keys) == len(set(keys))


def test_dump(oracle, filled):
    log = min(filled.glob("*.log"))
    assert "isvalid: true" in oracle.dump("--files", log)
    with pytest.raises(OracleError):
        oracle.dump("--no-such-option")
    damaged = bytearray(log.read_bytes())
    damaged[100] ^= 1
    log.write_bytes(damaged)
    assert "isvalid: false" in oracle.dump("--files", log)
    with pytest.raises(OracleError, match="CorruptRecord"):
        oracle.open(filled, clean=True)
