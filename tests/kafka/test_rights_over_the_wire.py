"""What connections may ask for, by user, by size, and before they have authenticated."""

import struct
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api, ErrorCode
from sparklog.kafka.users import change_users
from sparklog.log.log import Log
from tests.kafka.rights import logged_in, users_file
from tests.kafka.test_fetching import asked
from tests.kafka.wire import Wire
from tests.waiting import until

MIB = 1 << 20
pytestmark = pytest.mark.sparklog(topics={"t": 1})
TOPIC = ErrorCode.topic_authorization_failed


def deleted(wire: Wire) -> ErrorCode:
    answer = wire.ask(Api.DELETE_TOPICS, 5, topic_names=["t"], timeout=60_000)
    return ErrorCode(answer["responses"][0]["error_code"])


def fetched(wire: Wire, log: Log) -> ErrorCode:
    answer = wire.ask(Api.FETCH, 12, **asked(log, 12, ("t", 0, 0)))
    return ErrorCode(answer["responses"][0]["partitions"][0]["error_code"])


def produced(wire: Wire) -> ErrorCode:
    data = [{"index": 0, "records": b""}]
    answer = wire.ask(
        Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=1000,
        topic_data=[{"name": "t", "partition_data": data}],
    )  # fmt: skip
    return ErrorCode(answer["responses"][0]["partition_responses"][0]["error_code"])


def test_each_right_alone(sparklog_log: Log, tmp_path: Path) -> None:
    sparklog_log.append("t", pa.table({"value": ["secret"]}))
    options = users_file(tmp_path, reader="read", writer="write", owner="admin")
    none, refused = ErrorCode.none, ErrorCode.invalid_record  # there is no batch in it
    with Endpoint(sparklog_log, options=options) as endpoint:
        for name, codes in [
            ("reader", [none, TOPIC, TOPIC]), ("writer", [TOPIC, refused, TOPIC]),
            ("owner", [TOPIC, TOPIC, none]),
        ]:  # fmt: skip
            with logged_in(endpoint, name) as wire:
                found = [fetched(wire, sparklog_log), produced(wire), deleted(wire)]
            assert found == codes, name


def test_a_user_who_is_deleted_may_do_nothing_from_then_on(
    sparklog_log: Log, tmp_path: Path
) -> None:
    options = users_file(tmp_path, alice="read", bob="read")
    with (
        Endpoint(sparklog_log, options=options) as endpoint,
        logged_in(endpoint, "alice") as wire,
    ):
        assert fetched(wire, sparklog_log) == ErrorCode.none
        change_users(options["sasl.users.location"], lambda users: users.pop("alice"))
        endpoint._server.security.refresh()
        assert fetched(wire, sparklog_log) == TOPIC
        with pytest.raises(ConnectionError):  # to look takes some right
            wire.ask(Api.METADATA, 12, topics=None)


def test_nothing_before_authentication(sparklog_log: Log, tmp_path: Path) -> None:
    with Endpoint(sparklog_log, options=users_file(tmp_path, alice="read")) as endpoint:
        for api, version, body in [
            (Api.METADATA, 12, {"topics": None}),
            (Api.FETCH, 12, asked(sparklog_log, 12, ("t", 0, 0))),
            (Api.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout": 60_000}),
        ]:
            with Wire(endpoint, timeout_s=60) as wire, pytest.raises(ConnectionError):
                wire.ask(api, version, **body)
        with Wire(endpoint, timeout_s=60) as wire:
            assert wire.ask(Api.API_VERSIONS, 3)["error_code"] == ErrorCode.none
    assert set(sparklog_log.topics()) == {"t"}


def is_hung_up_on(endpoint: Endpoint, size: int) -> bool:
    """Tell whether a client that announces a request of so many bytes is disconnected for it."""
    with Wire(endpoint, timeout_s=2) as wire:
        wire._socket.sendall(struct.pack(">i", size))
        try:
            return wire._socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


def test_no_large_request_before_authentication(sparklog_log: Log, tmp_path: Path) -> None:
    with Endpoint(sparklog_log, options=users_file(tmp_path, alice="read")) as endpoint:
        assert is_hung_up_on(endpoint, (512 << 10) + 1)


def test_no_request_is_larger_than_it_may_be(sparklog_log: Log) -> None:
    with Endpoint(sparklog_log, options={"socket.request.max.bytes": 1 * MIB}) as endpoint:
        assert is_hung_up_on(endpoint, 1 * MIB + 1)


def test_a_large_request_takes_its_memory_before_it_is_there(sparklog_log: Log) -> None:
    """And gives it back when its client hangs up."""
    with Endpoint(sparklog_log) as endpoint:
        with Wire(endpoint) as wire:
            wire._socket.sendall(struct.pack(">i", 2 * MIB) + bytes(1000))
            until(lambda: endpoint._server.request_memory.used == 2 * MIB, seconds=8)
        until(lambda: endpoint._server.request_memory.used == 0, seconds=8)
