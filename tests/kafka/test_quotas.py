"""Counts of connections, memory of requests, slow senders, lines in the log."""

import logging

import pytest

from sparklog.kafka import quotas
from sparklog.kafka.quotas import ConnectionQuotas, LimitedLog, Progress, RequestMemory


def test_connections_in_all_and_by_address():
    found = ConnectionQuotas(3, 2, 1000)
    assert found.enter("a", 1) is None and found.enter("a", 1) is None
    assert "max.connections.per.ip" in found.enter("a", 1)
    assert found.enter("b", 1) is None
    assert "there are 3 connections already (max.connections)" in found.enter("c", 1)
    found.leave("a")
    assert found.enter("a", 1) is None
    for host in "aab":
        found.leave(host)
    assert found.count == 0 and not found._by_host


def test_connections_a_second():
    found = ConnectionQuotas(10**6, 10**6, 10)
    assert [found.enter("a", 1.0) for _ in range(10)] == [None] * 10
    assert "max.connection.creation.rate" in found.enter("a", 1.0)
    assert found.enter("a", 101.0) is None  # a tenth of a second later
    assert found.enter("a", 101.0) is not None
    assert [found.enter("a", 60_000.0) for _ in range(11)].count(None) == 10


def test_memory_goes_to_the_first_in_line():
    memory, woken = RequestMemory(100), []
    assert memory.take("a", 60, pytest.fail)
    assert not memory.take("b", 90, lambda: woken.append("b"))
    assert not memory.take("c", 10, lambda: woken.append("c"))  # there is room, but b came first
    assert memory.waiting == 2
    memory.release(60)
    assert (woken, memory.used) == (["b", "c"], 100)
    memory.release(90)
    memory.release(10)
    assert (memory.used, memory.waiting) == (0, 0)


def test_one_who_goes_makes_room_in_the_line():
    memory, woken = RequestMemory(100), []
    assert memory.take("a", 60, pytest.fail)
    assert not memory.take("b", 90, pytest.fail)
    assert not memory.take("c", 40, lambda: woken.append("c"))
    memory.forget("b")
    memory.forget("b")
    assert (woken, memory.used) == (["c"], 100)


def test_what_is_larger_than_all_gets_all():
    memory = RequestMemory(100)
    assert memory.take("a", 10**9, pytest.fail)
    assert memory.used == 100
    memory.release(10**9)
    assert memory.used == 0


def test_a_byte_a_second_is_too_slow_and_a_slow_network_is_not():
    drip, slow = Progress(0), Progress(0)
    for second in range(1, 60):
        drip.received(1)
        slow.received(20_000)
        now_ms = second * 1000.0
        assert drip.is_too_slow(now_ms, 30_000) is (second > 30)
        assert not slow.is_too_slow(now_ms, 30_000)
    drip.paused(40_000)
    assert not drip.is_too_slow(60_000, 30_000)


def test_lines_are_limited_and_counted(caplog, monkeypatch):
    now = [1_000_000.0]
    monkeypatch.setattr(quotas, "monotonic_ms", lambda: now[0])
    limited = LimitedLog(logging.getLogger("sparklog.kafka.lines"))
    for number in range(1000):
        limited.log(logging.WARNING, "client %d", number)
    def lines():
        return [r.getMessage() for r in caplog.records if r.name == "sparklog.kafka.lines"]

    assert lines() == [f"client {n}" for n in range(20)]
    now[0] += 10_000
    limited.log(logging.WARNING, "one more")
    assert lines()[20:] == [
        "980 lines about clients were left out", "one more"
    ]  # fmt: skip
