"""Produce and InitProducerId: by version, by what is wrong, by how many come at once."""

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog import Log
from sparklog.common import TopicPartition
from sparklog.errors import CommitUnknownError
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.kafka import Endpoint, committer
from sparklog.kafka.messages import Api, ErrorCode, uuid_of
from sparklog.log.log import home_of
from sparklog.storage.ledger_records import AppendRecord
from tests.kafka.wire import Wire as PlainWire
from tests.log.test_client_batches import changed
from tests.waiting import until


class Wire(PlainWire):
    """One whose answers have attributes."""

    def receive(self) -> Any:
        return _named(super().receive())


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: _named(each) for name, each in value.items()})
    return [_named(each) for each in value] if isinstance(value, list) else value


NOW = int(time.time() * 1000)


@pytest.fixture(params=["directory", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """Topic t with 3 partitions, u with one, in either kind of home."""
    where = str(tmp_path / "log")
    if request.param == "memory":
        where = f"memory://{uuid.uuid4().hex}/log"
    with sparklog.open(where, "rw") as found:
        found.create_topic("t", 3)
        found.create_topic("u")
        yield found


class Work:
    """Requests that the committer was given so far, and commits that it began."""

    added = begun = 0

    def until(self, **want: int) -> None:
        """Wait for so many; a busy machine takes its time."""
        until(
            lambda: all(getattr(self, name) >= count for name, count in want.items()), f"{want}",
            state=lambda: (self.added, self.begun), pause_s=0.005,
        )  # fmt: skip


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """What the endpoint's committer has to do, counted."""
    counted = Work()
    add, produce = committer.Committer.add, committer.produce

    def added(self: Any, work: Any) -> None:
        add(self, work)
        counted.added += 1

    def begun(*args: Any, **named: Any) -> Any:
        counted.begun += 1
        return produce(*args, **named)

    monkeypatch.setattr(committer.Committer, "add", added)
    monkeypatch.setattr(committer, "produce", begun)
    return counted


@pytest.fixture
def wire(endpoint: Endpoint) -> Iterator[Wire]:
    with Wire(endpoint) as found:
        yield found


def batch(
    *values: str,
    producer: tuple[int, int, int] | None = None,
    codec: Codec = Codec.NONE,
    keys: Sequence[str | None] | None = None,
    at: int = NOW,
) -> bytes:
    """One batch as a client sends it."""
    rows = pa.record_batch({
        "key": pa.array(keys or ["k"] * len(values), pa.string()),
        "value": pa.array(values, pa.string()),
        "timestamp": pa.array([at] * len(values), pa.timestamp("ms")),
    })  # fmt: skip
    limits = {"batch_size": 1 << 30, "max_message_bytes": 1 << 30}
    encoded = encode(rows, codec=codec, producer=producer, timestamp_ms_default=at, **limits)
    return bytes(encoded.data)


def send(
    wire: Wire,
    parts: dict[int, bytes | None],
    *,
    version: int = 12,
    topic: Any = "t",
    acks: int = -1,
    timeout: int = 600_000,
    **more: Any,
) -> None:
    named = {"topic_id": topic} if version >= 13 else {"name": topic}
    data = [{"index": index, "records": records} for index, records in parts.items()]
    wire.send(
        Api.PRODUCE, version, acks=acks, timeout=timeout,
        topic_data=[{**named, "partition_data": data}], **more,
    )  # fmt: skip


def parts_of(response: Any) -> list[Any]:
    (topic,) = response.responses
    return list(topic.partition_responses)


def produced(wire: Wire, records: bytes | None, partition: int = 0, **given: Any) -> Any:
    """Produce one batch; what is answered of its partition."""
    send(wire, {partition: records}, **given)
    (part,) = parts_of(wire.receive())
    return part


def values(log: Log, topic: str = "t", partition: int = 0) -> list[str]:
    found = log.read(topic, partitions=[partition])
    return [v.decode() for rows in found for v in rows.column("value").to_pylist()]


def commits(log: Log) -> int:
    """How many commits there are."""
    held = home_of(log).ledger.retained()
    return sum(isinstance(record, AppendRecord) for _, record in held)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_is_answered(wire: Wire, log: Log, version: int) -> None:
    topic = uuid_of(log.topic("t").id) if version >= 13 else "t"
    send(wire, {1: batch("a", "b"), 2: batch("c")}, version=version, topic=topic)
    response = wire.receive()
    one, two = parts_of(response)
    assert (one.index, one.error_code, one.base_offset) == (1, ErrorCode.none, 0)
    assert (two.index, two.error_code, two.base_offset) == (2, ErrorCode.none, 0)
    if version >= 5:
        assert one.log_start_offset == 0
    named = response.responses[0]
    assert named.topic_id == topic if version >= 13 else named.name == "t"
    part = produced(wire, batch("d"), 1, version=version, topic=topic)
    assert part.base_offset == 2
    assert (values(log, partition=1), values(log, partition=2)) == (["a", "b", "d"], ["c"])


def test_versions_below_3_are_told_of_and_refused(endpoint: Endpoint, wire: Wire) -> None:
    found = {each.api_key: each for each in wire.ask(Api.API_VERSIONS, 3).api_keys}
    assert (found[Api.PRODUCE].min_version, found[Api.PRODUCE].max_version) == (0, 13)
    wire._socket.sendall(b"\0\0\0\x10\0\0\0\2\0\0\0\1\xff\xff\xff\xff\0\0\0\0")
    with pytest.raises(ConnectionError):
        wire._exactly(1)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acks_is_a_commit(wire: Wire, log: Log, acks: int) -> None:
    send(wire, {0: batch("a")}, acks=acks)
    if acks:
        (part,) = parts_of(wire.receive())
        assert part.error_code == ErrorCode.none
    else:
        wire._asked.clear()
        wire._correlation_id -= 1  # it has no answer
    part = produced(wire, batch("b"))
    assert part.base_offset == 1
    assert values(log) == ["a", "b"]


def test_other_acks_are_refused(wire: Wire, log: Log) -> None:
    for acks in (2, -2):
        part = produced(wire, batch("a"), acks=acks)
        assert part.error_code == ErrorCode.invalid_required_acks
    assert values(log) == []


def test_who_wants_no_answer_is_hung_up_on_when_refused(wire: Wire, log: Log) -> None:
    send(wire, {0: batch("a"), 9: batch("b")}, acks=0)
    with pytest.raises(ConnectionError):
        wire._exactly(1)
    assert values(log) == ["a"]


def test_a_retry_has_the_old_offsets(wire: Wire, log: Log) -> None:
    """UnifiedLogTest.testDuplicateAppends."""
    sent = [batch("a", "b", producer=(9, 0, 2 * n)) for n in range(7)]
    assert [produced(wire, each).base_offset for each in sent] == [2 * n for n in range(7)]
    assert [produced(wire, each).base_offset for each in sent[2:]] == [2 * n for n in range(2, 7)]
    code = ErrorCode.out_of_order_sequence_number
    assert [produced(wire, each).error_code for each in sent[:2]] == [code, code]
    assert len(values(log)) == 14


def test_sequences_and_epochs(wire: Wire, log: Log) -> None:
    def code(epoch: int, sequence: int) -> str:
        found = produced(wire, batch("v", producer=(9, epoch, sequence)))
        return ErrorCode(found.error_code).name

    assert code(3, 7) == "none"  # an unknown producer takes any sequence
    assert code(3, 9) == "out_of_order_sequence_number"
    assert code(2, 8) == "invalid_producer_epoch"
    assert code(4, 8) == "out_of_order_sequence_number"
    assert code(4, 0) == "none"
    assert code(3, 8) == "invalid_producer_epoch"
    assert code(4, 1) == "none"
    assert len(values(log)) == 3


def test_a_batch_that_is_refused_takes_no_other_with_it(wire: Wire, log: Log) -> None:
    damaged = bytearray(batch("x"))
    damaged[-1] ^= 1
    send(wire, {0: batch("a"), 1: bytes(damaged), 7: batch("b"), 2: batch("c")})
    codes = [ErrorCode(part.error_code).name for part in parts_of(wire.receive())]
    assert codes == ["none", "corrupt_message", "unknown_topic_or_partition", "none"]
    assert [values(log, partition=p) for p in range(3)] == [["a"], [], ["c"]]


REQUEST_ERRORS = [
    (b"", ErrorCode.invalid_record),
    (None, ErrorCode.invalid_record),
    (batch("a") + batch("b"), ErrorCode.invalid_record),
    (changed(batch("a"), base_offset=1), ErrorCode.invalid_record),
    (changed(batch("a"), attributes=0x20), ErrorCode.invalid_record),
    (changed(batch("a"), attributes=0x08), ErrorCode.invalid_timestamp),
    (changed(batch("a"), attributes=0x10), ErrorCode.transactional_id_authorization_failed),
    (changed(batch("a"), attributes=6), ErrorCode.unsupported_compression_type),
    (batch("a" * (1 << 20)), ErrorCode.message_too_large),
    (batch("a", at=NOW + 864_000_000), ErrorCode.invalid_timestamp),
]


@pytest.mark.parametrize("number", range(len(REQUEST_ERRORS)))
def test_what_is_no_sound_batch_is_refused(wire: Wire, log: Log, number: int) -> None:
    records, code = REQUEST_ERRORS[number]
    part = produced(wire, records)
    assert part.error_code == code
    assert part.base_offset == -1
    assert part.error_message
    assert values(log) == []
    assert produced(wire, batch("a"), version=3).error_code == ErrorCode.none


def test_zstd_is_for_those_who_know_it(wire: Wire) -> None:
    data = batch("a" * 99, codec=Codec.ZSTD)
    assert produced(wire, data, version=6).error_code == ErrorCode.unsupported_compression_type
    assert produced(wire, data, version=7).error_code == ErrorCode.none


def test_the_records_that_are_refused_are_named(wire: Wire, log: Log) -> None:
    log.create_topic("c", config={"cleanup.policy": "compact"})
    data = batch("a", "b", "c", keys=["k", None, None])
    part = produced(wire, data, topic="c")
    assert part.error_code == ErrorCode.invalid_record
    assert [each.batch_index for each in part.record_errors] == [1, 2]
    assert "without key" in part.record_errors[0].batch_index_error_message
    assert "2 records" in part.error_message
    assert produced(wire, data, topic="c", version=7).error_code == ErrorCode.invalid_record


def test_the_appends_time_is_answered(wire: Wire, log: Log) -> None:
    log.create_topic("s", config={"message.timestamp.type": "LogAppendTime"})
    data = batch("a", producer=(9, 0, 0))
    part = produced(wire, data, topic="s")
    (rows,) = log.read("s")
    assert rows.column("timestamp").cast("int64").to_pylist() == [part.log_append_time * 1000]
    assert produced(wire, data, topic="s").log_append_time == part.log_append_time
    assert produced(wire, batch("a")).log_append_time in (-1, None)


def test_what_isnt_there_or_isnt_for_clients(wire: Wire, log: Log) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    assert produced(wire, batch("a"), topic="gone").error_code == unknown
    assert produced(wire, batch("a"), 3).error_code == unknown
    for name in ("__consumer_offsets", "__sparklog_commits", "__transaction_state"):
        part = produced(wire, batch("a"), topic=name)
        assert part.error_code == ErrorCode.invalid_topic_exception
    part = produced(wire, batch("a"), topic=uuid.uuid4(), version=13)
    assert part.error_code == ErrorCode.unknown_topic_id


def test_a_topic_that_is_made_again_is_another_one(wire: Wire, log: Log) -> None:
    old = uuid_of(log.topic("t").id)
    assert produced(wire, batch("a"), topic=old, version=13).error_code == ErrorCode.none
    log.delete_topic("t")
    log.create_topic("t")
    part = produced(wire, batch("b"), topic=old, version=13)
    assert part.error_code == ErrorCode.unknown_topic_id
    new = uuid_of(log.topic("t").id)
    assert produced(wire, batch("c"), topic=new, version=13).error_code == ErrorCode.none
    assert values(log) == ["c"]


def test_a_topic_of_another_process_is_found(wire: Wire, log: Log) -> None:
    with sparklog.open(log.path, "rw") as other:
        other.create_topic("new")
        topic_id = uuid_of(other.topic("new").id)
    assert produced(wire, batch("a"), topic="new").error_code == ErrorCode.none
    part = produced(wire, batch("b"), topic=topic_id, version=13)
    assert (part.error_code, part.base_offset) == (ErrorCode.none, 1)


def test_a_config_counts_from_when_it_is_changed(wire: Wire, log: Log) -> None:
    """Whoever changes it, and whatever this process knew before."""
    assert produced(wire, batch("a", keys=[None])).error_code == ErrorCode.none
    with sparklog.open(log.path, "rw") as other:
        other.alter_topic("t", config={"cleanup.policy": "compact"})
    part = produced(wire, batch("b", keys=[None]))
    assert part.error_code == ErrorCode.invalid_record
    with sparklog.open(log.path, "rw") as other:
        other.alter_topic("t", config={"cleanup.policy": None, "compression.type": "gzip"})
    assert produced(wire, batch("b", keys=[None], codec=Codec.LZ4)).error_code == ErrorCode.none
    assert values(log) == ["a", "b"]


def test_a_log_that_is_open_for_reading_takes_nothing(log: Log) -> None:
    with sparklog.open(log.path) as reader, Endpoint(reader) as endpoint, Wire(endpoint) as wire:
        part = produced(wire, batch("a"))
        assert part.error_code == ErrorCode.topic_authorization_failed
        assert "reading" in part.error_message


def test_transactions_are_refused_for_good(wire: Wire, log: Log) -> None:
    code = ErrorCode.transactional_id_authorization_failed
    part = produced(wire, batch("a"), transactional_id="mine")
    assert part.error_code == code
    assert "transactional.id" in part.error_message
    for version in range(6):
        found = wire.ask(Api.INIT_PRODUCER_ID, version, transactional_id="mine")
        assert (found.error_code, found.producer_id, found.producer_epoch) == (code, -1, -1)
    assert values(log) == []


def test_an_idempotent_producer_gets_an_id_of_its_own(wire: Wire) -> None:
    ids = set()
    for version in range(6):
        found = wire.ask(Api.INIT_PRODUCER_ID, version, transactional_id=None)
        assert (found.error_code, found.producer_epoch) == (ErrorCode.none, 0)
        assert 2**62 <= found.producer_id < 2**63  # a broker counts its own from 0
        ids.add(found.producer_id)
    assert len(ids) == 6
    again = wire.ask(
        Api.INIT_PRODUCER_ID, 3, transactional_id=None, producer_id=7, producer_epoch=2
    )
    assert again.error_code == ErrorCode.none
    for given in ({"producer_id": 7}, {"producer_epoch": 1}):
        found = wire.ask(Api.INIT_PRODUCER_ID, 3, transactional_id=None, **given)
        assert found.error_code == ErrorCode.invalid_request


# --- many at once -----------------------------------------------------------------------------


def test_what_waits_is_committed_together(endpoint: Endpoint, log: Log, work: Work) -> None:
    before = commits(log)
    wires = [Wire(endpoint) for _ in range(4)]
    with home_of(log).commits.exclusive():
        for wire in wires:
            send(wire, {0: batch("first")})
        work.until(added=4, begun=1)  # the one that it began waits for the lock
        for number, wire in enumerate(wires):
            for sequence in range(3):
                send(wire, {1: batch("v", producer=(number + 1, 0, sequence))})
        work.until(added=16)
    for wire in wires:
        answers = [parts_of(wire.receive())[0] for _ in range(4)]
        assert [part.error_code for part in answers] == [ErrorCode.none] * 4
        offsets = [part.base_offset for part in answers[1:]]
        assert offsets == sorted(offsets)
        wire.close()
    assert commits(log) - before == 2
    assert log.offsets("t") == {0: (0, 4), 1: (0, 12), 2: (0, 0)}


def test_batches_of_one_commit_are_read_in_their_order(
    endpoint: Endpoint, log: Log, work: Work
) -> None:
    """They are one chunk, whose offsets count on and whose times are those of all."""
    later = NOW + 1000
    with Wire(endpoint) as wire:
        with home_of(log).commits.exclusive():
            send(wire, {1: batch("first")})
            work.until(added=1, begun=1)
            for number in range(3):
                send(wire, {0: batch(f"{number}a", f"{number}b", at=later if number else NOW)})
            work.until(added=4)
        assert [parts_of(wire.receive())[0].base_offset for _ in range(4)] == [0, 0, 2, 4]
        latest = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -3}]}
        found = wire.ask(Api.LIST_OFFSETS, 7, replica_id=-1, topics=[latest])
    assert found.topics[0].partitions[0].timestamp == later
    assert values(log) == ["0a", "0b", "1a", "1b", "2a", "2b"]
    offsets = [o for rows in log.read("t", partitions=[0]) for o in rows["offset"].to_pylist()]
    assert offsets == list(range(6))


def test_no_commit_is_larger_than_it_may_be(
    endpoint: Endpoint, log: Log, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "COMMIT_BYTES", 1000)
    before = commits(log)
    with Wire(endpoint) as wire:
        with home_of(log).commits.exclusive():
            for _ in range(5):
                send(wire, {0: batch("v" * 600)})
            work.until(added=5)
        answers = [parts_of(wire.receive())[0] for _ in range(5)]
    assert [part.base_offset for part in answers] == [0, 1, 2, 3, 4]
    assert commits(log) - before == 3


def test_who_waits_too_long_is_told_and_nothing_is_written(
    endpoint: Endpoint, log: Log, work: Work
) -> None:
    first, late, patient = Wire(endpoint), Wire(endpoint), Wire(endpoint)
    with home_of(log).commits.exclusive():
        send(first, {0: batch("first")}, timeout=600_000)
        work.until(begun=1)
        send(late, {0: batch("late")}, timeout=0)
        send(patient, {0: batch("patient")}, timeout=0, acks=1)
        (part,) = parts_of(late.receive())
    assert part.error_code == ErrorCode.request_timed_out
    assert parts_of(first.receive())[0].error_code == ErrorCode.none
    assert parts_of(patient.receive())[0].error_code == ErrorCode.none
    assert values(log) == ["first", "patient"]
    for wire in (first, late, patient):
        wire.close()


def test_what_was_sent_is_committed_though_the_client_has_gone(
    endpoint: Endpoint, log: Log, work: Work
) -> None:
    with home_of(log).commits.exclusive(), Wire(endpoint) as wire:
        send(wire, {0: batch("a")})
        work.until(added=1)
    until(lambda: values(log))
    assert values(log) == ["a"]


def test_the_end_of_the_endpoint_loses_nothing(log: Log, work: Work) -> None:
    with Endpoint(log) as endpoint, Wire(endpoint) as wire:
        with home_of(log).commits.exclusive():
            for _ in range(5):
                send(wire, {0: batch("a")})
            work.until(added=5)
            closing = threading.Thread(target=endpoint.close)
            closing.start()
            time.sleep(0.1)
        closing.join()
    assert values(log) == ["a"] * 5


def test_a_commit_of_unknown_outcome_is_tried_again_and_known_again(
    endpoint: Endpoint, wire: Wire, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit went through, and whoever made it wasn't told."""
    kept = home_of(log).commits
    append = type(kept).append

    def deaf(self: Any, change: Any, *, expected: int) -> Any:
        append(self, change, expected=expected)
        raise CommitUnknownError("no answer", position=expected)

    data = batch("a", producer=(9, 0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(type(kept), "append", deaf)
        part = produced(wire, data)
    assert part.error_code == ErrorCode.not_enough_replicas_after_append
    part = produced(wire, data)
    assert (part.error_code, part.base_offset) == (ErrorCode.none, 0)
    assert values(log) == ["a"]


def test_others_write_to_the_same_partition_meanwhile(endpoint: Endpoint, log: Log) -> None:
    stop = threading.Event()

    def append() -> None:
        while not stop.is_set():
            log.append("t", pa.table({"value": ["own"]}), partition=0)

    own = threading.Thread(target=append)
    own.start()
    with Wire(endpoint) as wire:
        found = [
            produced(wire, batch("theirs", producer=(5, 0, sequence))).error_code
            for sequence in range(25)
        ]
    stop.set()
    own.join()
    assert found == [ErrorCode.none] * 25
    read = values(log)
    assert read.count("theirs") == 25
    assert set(read) == {"own", "theirs"}
    assert log.offsets("t")[0] == (0, len(read))


def test_readers_of_the_endpoint_hear_of_a_commit_at_once(endpoint: Endpoint, wire: Wire) -> None:
    latest = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}
    for offset in range(3):
        found = wire.ask(Api.LIST_OFFSETS, 7, replica_id=-1, topics=[latest])
        assert found.topics[0].partitions[0].offset == offset
        produced(wire, batch("a"))
    key = TopicPartition("t", 0)
    assert endpoint._server._broker.partitions.known_span(key) == (0, 3)
