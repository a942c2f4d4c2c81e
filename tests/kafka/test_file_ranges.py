"""Fetches of batches that were checked before: the kernel sends them from their file."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme

import sparklog
from sparklog import Log
from sparklog.format.names import log_name
from sparklog.format.scan import scan
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api, ErrorCode
from sparklog.log import read_retry, verified_batches
from sparklog.log.log import view_of
from sparklog.log.partition_reader import ReadBudget, reader_of
from sparklog.log.raw_batches import read_batches
from sparklog.log.read_retry import PartitionRead
from sparklog.log.verified_batches import VerifiedBatches
from tests.kafka.test_fetching import MIB, asked, fetch, found, offsets, response_memory_of
from tests.kafka.wire import Wire
from tests.logdir.partitions import flip
from tests.waiting import until

LARGE = {"bytes_max": 16 * MIB, "max_bytes": 16 * MIB}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Topic t of two partitions with some batches each, in files that nobody wrote to lately."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2, {"max.message.bytes": 20_000})
        for p in range(2):
            log.append("t", pa.table({"value": [f"{p}" * 1000] * 100}), partition=p)
            age(segment(log, p))
        yield log


@pytest.fixture
def large_log(tmp_path: Path) -> Iterator[Log]:
    """Topic t with 12 MB, more than sockets hold."""
    with sparklog.open(tmp_path / "large", "rw") as log:
        log.create_topic("t")
        for _ in range(3):
            log.append("t", pa.table({"value": ["x" * 4000] * 1000}))
        age(segment(log))
        yield log


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each call of sendfile that the socket took."""
    calls: list[int] = []
    sendfile = os.sendfile

    def counted(to: int, of: int, at: int, size: int) -> int:
        done = sendfile(to, of, at, size)
        calls.append(done)
        return done

    monkeypatch.setattr(verified_batches.os, "sendfile", counted)
    return calls


def segment(log: Log, partition: int = 0) -> Path:
    return Path(log.topic("t").dirs[partition]) / log_name(0)


def age(path: Path) -> None:
    os.utime(path, (1_700_000_000, 1_700_000_000))


def records(answer: Any) -> bytes:
    return bytes(answer["records"])


def free(endpoint: Endpoint) -> int:
    handler: Any = endpoint._server.served[Api.FETCH].handle
    reader = handler.__self__._reader
    return len(reader._verified._descriptors._free)


def test_the_second_reader_gets_the_same_bytes_from_the_file(log: Log, sent: list[int]) -> None:
    with Endpoint(log) as endpoint, Wire(endpoint) as first, Wire(endpoint) as second:
        (one,) = fetch(first, log, ("t", 0, 0))
        assert records(one) == segment(log).read_bytes() and not sent
        (other,) = fetch(second, log, ("t", 0, 0))
        assert other == one
        assert sum(sent) == len(one["records"])
        received = first.received_bytes + second.received_bytes
        until(lambda: endpoint._server.meters.sent.samples()[0].value == received)
        until(lambda: free(endpoint) == verified_batches.DESCRIPTORS_MAX)


def test_from_the_middle_and_up_to_a_limit(log: Log, sent: list[int]) -> None:
    """Whole batches from the one that holds the offset on, as many as fit."""
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        (whole,) = fetch(wire, log, ("t", 0, 0))
        table = scan(records(whole), path="answer").table
        start, stop = int(table["position"][2]), int(table["position"][4])
        for offset in (int(table["base_offset"][2]), int(table["last_offset"][2])):
            sent.clear()
            (one,) = fetch(wire, log, ("t", 0, offset), bytes_max=stop - start + 100)
            assert records(one) == records(whole)[start:stop]
            assert sum(sent) == stop - start


def test_what_is_behind_is_read_and_comes_behind(log: Log, sent: list[int]) -> None:
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        (part,) = fetch(wire, log, ("t", 0, 0), bytes_max=40_000)
        (whole,) = fetch(wire, log, ("t", 0, 0))
        assert records(whole) == segment(log).read_bytes()
        assert sum(sent) == len(part["records"])


def test_several_partitions_and_requests_keep_their_order(log: Log, sent: list[int]) -> None:
    """Pipelined fetches; one partition comes from memory between two that come from files."""
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        (first,) = fetch(wire, log, ("t", 0, 0))
        places = [("t", 0, 0), ("t", 1, 0), ("t", 0, 50)]
        for _ in range(3):
            wire.send(Api.FETCH, 12, **asked(log, 12, *places))
        for _ in range(3):
            one, two, three = found(wire.receive())
            assert records(one) == records(first)
            assert records(two) == segment(log, 1).read_bytes()
            assert records(first).endswith(records(three)) and 50 in offsets(three)
        assert sum(sent) >= 3 * len(first["records"])


def test_a_client_that_goes_away_meanwhile(large_log: Log, sent: list[int]) -> None:
    with Endpoint(large_log) as endpoint, Wire(endpoint) as wire:
        fetch(wire, large_log, ("t", 0, 0), **LARGE)
        slow = Wire(endpoint, receive_bytes=4096)
        slow.send(Api.FETCH, 12, **asked(large_log, 12, ("t", 0, 0), **LARGE))
        until(lambda: free(endpoint) < verified_batches.DESCRIPTORS_MAX and bool(sent))
        slow.close()
        until(lambda: free(endpoint) == verified_batches.DESCRIPTORS_MAX)
        until(lambda: response_memory_of(endpoint).held_bytes == 0)
        assert fetch(wire, large_log, ("t", 0, 0), **LARGE)[0]["error_code"] == 0


def test_a_slow_client_stops_no_other_and_gets_all(large_log: Log, sent: list[int]) -> None:
    """Its segment is deleted meanwhile."""
    whole = segment(large_log).read_bytes()
    with Endpoint(large_log) as endpoint, Wire(endpoint) as wire:
        fetch(wire, large_log, ("t", 0, 0), **LARGE)
        with Wire(endpoint, receive_bytes=4096) as slow:
            slow.send(Api.FETCH, 12, **asked(large_log, 12, ("t", 0, 0), **LARGE))
            until(lambda: bool(sent))
            assert records(fetch(wire, large_log, ("t", 0, 0), **LARGE)[0]) == whole
            segment(large_log).unlink()
            assert records(found(slow.receive())[0]) == whole


def test_a_file_that_is_cut_meanwhile_ends_the_connection(
    large_log: Log, sent: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """No other bytes come in the place of those that are missing."""
    with Endpoint(large_log) as endpoint, Wire(endpoint) as wire:
        fetch(wire, large_log, ("t", 0, 0), **LARGE)
        with Wire(endpoint, timeout_s=60, receive_bytes=4096) as slow:
            slow.send(Api.FETCH, 12, **asked(large_log, 12, ("t", 0, 0), **LARGE))
            until(lambda: bool(sent))
            os.truncate(segment(large_log), 0)
            with pytest.raises(ConnectionError):
                slow.receive()
        until(lambda: "a segment was truncated while it was being sent" in caplog.text)


def test_a_file_that_has_changed_is_checked_again(
    log: Log, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_retry, "RETRY_MS", 20)
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        fetch(wire, log, ("t", 0, 0))
        flip(str(segment(log)), 200)
        (one,) = fetch(wire, log, ("t", 0, 0))
        assert one["error_code"] == ErrorCode.corrupt_message and not sent


def test_a_file_that_was_just_written_is_read(log: Log, sent: list[int]) -> None:
    """A change within the same tick would not show in its time."""
    os.utime(segment(log))
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        one, two = (fetch(wire, log, ("t", 0, 0)) for _ in range(2))
        assert one == two and not sent


def test_after_some_time_batches_are_checked_again(
    log: Log, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        fetch(wire, log, ("t", 0, 0))
        monkeypatch.setattr(verified_batches, "TRUSTED_MS", -1)
        fetch(wire, log, ("t", 0, 0))
        assert not sent


def test_tls_is_sent_from_memory(log: Log, sent: list[int], tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    options = {
        "ssl.keystore.location": str(tmp_path / "chain.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
        "advertised.listeners": "localhost:9093",
    }
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with Endpoint(log, options=options) as endpoint, Wire(endpoint) as wire:
        wire._socket = context.wrap_socket(wire._socket, server_hostname="localhost")
        for _ in range(2):
            (one,) = fetch(wire, log, ("t", 0, 0))
            assert records(one) == segment(log).read_bytes()
    assert not sent


def test_too_many_files_at_once_are_read(log: Log) -> None:
    view, verified = view_of(log), VerifiedBatches(descriptors_max=1)

    def read() -> Any:
        read = PartitionRead(
            view, "t", 0, 0, 100, topic_id=log.topic("t").id, incarnation=view.renew()
        )
        return read_batches(read, ReadBudget(MIB), verified=verified)

    read()
    held = read()
    assert held.file_range is not None and read().file_range is None
    del held
    assert read().file_range is not None


def test_no_batch_reaches_past_the_end(log: Log) -> None:
    """Which is a high watermark or a last stable offset."""
    view, verified = view_of(log), VerifiedBatches()
    read = PartitionRead(view, "t", 0, 0, 100, incarnation=view.renew())
    whole = read_batches(read, ReadBudget(MIB), verified=verified)
    table = scan(b"".join(whole.parts), path="answer").table
    end = int(table["base_offset"][3])
    for reached in (end, end + 1):
        known = verified.find(reader_of(view, "t", 0), 0, reached, ReadBudget(MIB))
        assert known is not None
        assert (known.next_offset, len(known.range)) == (end, int(table["position"][3]))


def test_what_is_remembered_is_bounded(log: Log) -> None:
    view, verified = view_of(log), VerifiedBatches(rows_max=50)
    for p in range(2):
        read = PartitionRead(view, "t", p, 0, 100, incarnation=view.renew())
        read_batches(read, ReadBudget(MIB), verified=verified)
    assert 0 < verified._rows <= 50


def test_an_answer_waits_for_a_full_socket_by_a_small_piece(large_log: Log) -> None:
    """Batches that come from memory, too: none is lost or sent twice."""
    whole = segment(large_log).read_bytes()
    os.utime(segment(large_log))
    with Endpoint(large_log) as endpoint, Wire(endpoint, receive_bytes=4096) as slow:
        slow.send(Api.FETCH, 12, **asked(large_log, 12, ("t", 0, 0), **LARGE))
        until(lambda: endpoint._server.outgoing_bytes > 0)
        assert records(found(slow.receive())[0]) == whole
