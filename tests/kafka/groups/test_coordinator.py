"""Which endpoint coordinates, how long commits live, and where nothing can be kept."""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.kafka import Endpoint
from sparklog.kafka.messages import Api, ErrorCode
from sparklog.log.log import Log, home_of
from sparklog.logdir.lease import ENDPOINT_NAME
from tests.kafka.groups.test_requests import OPTIONS, commit, fetch, join, sync
from tests.kafka.wire import Wire
from tests.waiting import until

NONE = ErrorCode.none
Serve = Callable[..., Endpoint]


@pytest.fixture(params=["log dir", "store"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    where = str(tmp_path / "log")
    return where if request.param == "log dir" else f"file://{where}"


@pytest.fixture
def serve(path: str) -> Iterator[Serve]:
    """Return what opens the log once more, as another process does, and serves it."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 3)
        log.append("t", pa.table({"value": [b"x"] * 9}), partition=0)
    opened: list[tuple[Endpoint, Log]] = []

    def served(**given: Any) -> Endpoint:
        log = sparklog.open(path, given.pop("mode", "rw"))
        options = OPTIONS | given.pop("options", {})
        endpoint = Endpoint(log, options=options, **given)
        opened.append((endpoint, log))
        return endpoint

    yield served
    for endpoint, log in opened:
        endpoint.close()
        log.close()


def found(endpoint: Endpoint) -> tuple[int, int] | ErrorCode:
    """The (node id, port) of the coordinator, by what an endpoint says."""
    with Wire(endpoint) as wire:
        (one,) = wire.ask(Api.FIND_COORDINATOR, 6, coordinator_keys=["g"])["coordinators"]
    return one["error_code"] or (one["node_id"], one["port"])


@pytest.mark.parametrize("modes", [("rw", "r"), ("r", "rw")])
def test_one_of_two_endpoints_coordinates_and_the_other_knows_it(
    serve: Serve, modes: tuple[str, str]
) -> None:
    one, two = (serve(mode=mode) for mode in modes)
    assert found(one) == (1, one.port)
    node_id, port = found(two)
    assert port == one.port
    assert node_id != 1  # clients know a node by its id, and this one is 1 itself
    with Wire(two) as wire:
        elsewhere = ErrorCode.not_coordinator
        assert join(wire)["error_code"] == elsewhere
        assert commit(wire) == [elsewhere]
        who = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        assert wire.ask(Api.HEARTBEAT, 4, **who)["error_code"] == elsewhere
        assert sync(wire, {"generation_id": 1, "member_id": "m"})["error_code"] == elsewhere
        assert wire.ask(Api.LEAVE_GROUP, 5, group_id="g", members=[])["error_code"] == elsewhere
        asked = [{"group_id": "g", "topics": None}]
        (offsets,) = wire.ask(Api.OFFSET_FETCH, 9, groups=asked)["groups"]
        assert offsets["error_code"] == elsewhere
        assert wire.ask(Api.LIST_GROUPS, 5)["error_code"] == elsewhere
        (described,) = wire.ask(Api.DESCRIBE_GROUPS, 6, groups=["g"])["groups"]
        assert described["error_code"] == elsewhere
        (deleted,) = wire.ask(Api.DELETE_GROUPS, 2, groups_names=["g"])["results"]
        assert deleted["error_code"] == elsewhere
        assert wire.ask(Api.OFFSET_DELETE, 0, group_id="g", topics=[])["error_code"] == elsewhere
    with Wire(one) as wire:
        assert join(wire)["error_code"] == NONE


def nodes(endpoint: Endpoint) -> dict[int, int]:
    """The {node id: port} of the brokers in Metadata."""
    with Wire(endpoint) as wire:
        answer = wire.ask(Api.METADATA, 12, topics=[])
    assert answer["controller_id"] == endpoint._server.options.node_id
    return {node["node_id"]: node["port"] for node in answer["brokers"]}


def described(endpoint: Endpoint) -> dict[int, int]:
    """The same by DescribeCluster."""
    with Wire(endpoint) as wire:
        answer = wire.ask(Api.DESCRIBE_CLUSTER, 1)
    return {node["broker_id"]: node["port"] for node in answer["brokers"]}


@pytest.mark.parametrize("given", [{}, {"node.id": 7}], ids=["one id", "ids of their own"])
def test_each_node_that_clients_are_sent_to_is_among_the_brokers(
    serve: Serve, given: dict[str, Any]
) -> None:
    """A client drops a coordinator that Metadata does not list."""
    one, two = serve(options=given), serve()
    own = {one: given.get("node.id", 1), two: 1}
    assert (nodes(one), nodes(two)) == ({own[one]: one.port}, {1: two.port})
    for endpoint in (one, two, one):
        node_id, port = found(endpoint)
        assert port == one.port
        assert nodes(endpoint)[node_id] == port
        assert nodes(endpoint)[own[endpoint]] == endpoint.port
        assert described(endpoint) == nodes(endpoint)
    assert len(nodes(one)) == 1
    assert len(nodes(two)) == 2


def test_an_endpoint_that_has_ended_leaves_the_brokers(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.kafka.groups.coordinator.CHECK_MS", 50)
    one, two = serve(), serve()
    assert found(one) == (1, one.port)
    assert found(two) != (1, two.port)
    assert len(nodes(two)) == 2
    one.close()
    assert until(lambda: nodes(two) == {1: two.port})  # nobody asks for a coordinator
    assert found(two) == (1, two.port)


def test_nodes_of_different_ids_are_named_by_them(serve: Serve) -> None:
    one, two = serve(options={"node.id": 7}), serve()
    assert found(one) == (7, one.port)
    assert found(two) == (7, one.port)


@pytest.mark.parametrize(("node_id", "warnings"), [(1, 1), (2, 0)])
def test_endpoints_with_the_same_id_are_warned_of_once(
    serve: Serve, caplog: pytest.LogCaptureFixture, node_id: int, warnings: int
) -> None:
    one, two = serve(), serve(options={"node.id": node_id})
    found(one)
    for _ in range(2):
        found(two)
        found(one)
    told = [m for m in caplog.messages if "give each endpoint of the log a node.id of its own" in m]
    assert len(told) == warnings


def test_the_other_takes_over_when_an_endpoint_ends(serve: Serve) -> None:
    one, two = serve(), serve()
    with Wire(one) as wire:
        joined = join(wire)
        sync(wire, joined)
        assert commit(wire, member_id=joined["member_id"], generation_id_or_member_epoch=1) == [
            NONE
        ]
    assert found(two) != (1, two.port)
    one.close()
    assert until(lambda: found(two) == (1, two.port))
    with Wire(two) as wire:
        assert fetch(wire) == {"t": {0: (5, 0, "note")}}
        who = {k: joined[k] for k in ("generation_id", "member_id")}
        beat = wire.ask(Api.HEARTBEAT, 4, group_id="g", **who)["error_code"]
        assert beat == ErrorCode.unknown_member_id
        assert join(wire)["error_code"] == NONE


def test_an_endpoint_that_no_group_used_holds_nothing(serve: Serve, path: str) -> None:
    serve()
    two = serve()
    assert found(two) == (1, two.port)


@pytest.mark.parametrize("path", ["log dir"], indirect=True)
def test_who_waits_at_one_that_lost_its_lease_is_sent_on(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.kafka.groups.coordinator.CHECK_MS", 50)
    one, two = serve(options={"group.initial.rebalance.delay.ms": 600_000}), serve()
    with Wire(one) as wire:
        assert wire.ask(Api.LIST_GROUPS, 5)["error_code"] == NONE
        protocols = [{"name": "range", "metadata": b""}]
        wire.send(
            Api.JOIN_GROUP, 3, group_id="g", session_timeout=600_000, rebalance_timeout=600_000,
            member_id="", protocol_type="consumer", protocols=protocols,
        )  # fmt: skip
        os.rename(f"{path}/{ENDPOINT_NAME}", f"{path}/gone")  # as where a disk was copied
        assert found(two) == (1, two.port)
        assert wire.receive()["error_code"] == ErrorCode.not_coordinator
    assert found(one)[1] == two.port


@pytest.mark.parametrize("path", ["log dir"], indirect=True)
def test_a_store_or_disk_that_is_away_leaves_no_coordinator_for_now(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = serve()
    lease = "sparklog.logdir.lease.ServiceLease.acquire"

    def away(self: object) -> bool:
        raise StorageUnavailableError("away", passing=True)

    monkeypatch.setattr(lease, away)
    assert found(one) == ErrorCode.coordinator_not_available
    with Wire(one) as wire:
        assert join(wire)["error_code"] == ErrorCode.coordinator_not_available
    monkeypatch.undo()
    assert found(one) == (1, one.port)


# --- where nothing can be kept --------------------------------------------------------------------


@pytest.fixture
def read_only(path: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    """An endpoint of a log that has a group, on a file system that is mounted read-only."""
    with sparklog.open(path) as log:
        log.commit_offsets("kept", {"t": {0: 3}})
    endpoint = serve(mode="r")
    home = home_of(endpoint._server._log)

    def refuse(*given: object) -> bool:
        raise StorageUnavailableError("no") from OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(home.groups, "change", refuse)
    lease = type(home.endpoint_lease({}))
    monkeypatch.setattr(lease, "acquire", refuse)
    return endpoint


def test_commits_live_in_memory_where_nothing_can_be_written_and_it_is_said_once(
    read_only: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sparklog.kafka"), Wire(read_only) as wire:
        assert found(read_only) == (1, read_only.port)
        joined = join(wire)
        sync(wire, joined)
        member = {"member_id": joined["member_id"], "generation_id_or_member_epoch": 1}
        assert commit(wire, **member) == [NONE]
        assert commit(wire, group_id="h") == [NONE]
        assert fetch(wire)["t"][0] == (5, 0, "note")
        assert fetch(wire, "kept")["t"][0][0] == 3  # what is kept already is where groups begin
        assert commit(wire, group_id="kept", parts={1: 0}) == [NONE]
        assert {p: at[0] for p, at in fetch(wire, "kept")["t"].items()} == {0: 3, 1: 0}
        listed = wire.ask(Api.LIST_GROUPS, 5)["groups"]
        assert [each["group_id"] for each in listed] == ["g", "h", "kept"]
        (deleted,) = wire.ask(Api.DELETE_GROUPS, 2, groups_names=["kept"])["results"]
        assert deleted["error_code"] == NONE
        assert fetch(wire, "kept") == {}
        (deleted,) = wire.ask(Api.DELETE_GROUPS, 2, groups_names=["kept"])["results"]
        assert deleted["error_code"] == ErrorCode.group_id_not_found
        asked = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        assert wire.ask(Api.OFFSET_DELETE, 0, group_id="h", topics=asked)["error_code"] == NONE
        assert fetch(wire, "h") == {}
    words = [record.message for record in caplog.records]
    assert sum("are lost when this endpoint" in each for each in words) == 1
    assert sum("coordinates consumer groups without a lease" in each for each in words) == 1


def test_a_file_system_that_turns_read_only_is_no_reason_to_forget(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was answered as durable is; what can't be kept any more is to be tried again."""
    endpoint = serve()
    with Wire(endpoint) as wire:
        assert commit(wire) == [NONE]

        def refuse(*given: object) -> bool:
            raise StorageUnavailableError("no") from OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(home_of(endpoint._server._log).groups, "change", refuse)
        assert commit(wire, parts={0: 6}) == [ErrorCode.coordinator_not_available]


def test_a_brokers_directory_is_left_as_it_is(tmp_path: Path, serve: Serve) -> None:
    """Nothing there waits for readers, and no file of ours belongs there."""
    source = serve()._server._log
    if source.path.startswith("file:"):
        pytest.skip("a broker's directory is no store")
    theirs = tmp_path / "broker"
    shutil.copytree(f"{source.path}/t-0", theirs / "t-0")
    before = sorted(str(file) for file in theirs.rglob("*"))
    with sparklog.open(theirs) as log, Endpoint(log, options=OPTIONS) as endpoint:
        assert found(endpoint) == (1, endpoint.port)
        with Wire(endpoint) as wire:
            assert join(wire)["error_code"] == NONE
            assert commit(wire, group_id="h") == [NONE]
            assert fetch(wire, "h") == {"t": {0: (5, 0, "note")}}
        assert log.readers().num_rows == 0
    assert sorted(str(file) for file in theirs.rglob("*")) == before


# --- how long commits live ------------------------------------------------------------------------


def test_commits_of_a_group_at_work_count_from_when_its_last_member_went(
    serve: Serve, path: str
) -> None:
    clock = ManualClock()
    endpoint = serve(clock=clock)
    with Wire(endpoint) as wire:
        joined = join(wire)
        sync(wire, joined)
        member = {"member_id": joined["member_id"], "generation_id_or_member_epoch": 1}
        commit(wire, **member)
        clock.advance(6 * 86_400_000)
        gone = [{"member_id": joined["member_id"], "group_instance_id": None}]
        wire.ask(Api.LEAVE_GROUP, 5, group_id="g", members=gone)
        groups = home_of(endpoint._server._log).groups

        def times() -> set[int]:
            return {at.time_ms for at in groups.positions("g").values()}

        assert until(lambda: times() == {clock()})
        assert fetch(wire)["t"][0] == (5, 0, "note")


@pytest.mark.parametrize("path", ["log dir"], indirect=True)
def test_commits_of_an_idle_member_are_kept_alive(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.kafka.groups.coordinator._TOUCH_MS", 50)
    clock = ManualClock()
    endpoint = serve(clock=clock)
    groups = home_of(endpoint._server._log).groups
    with Wire(endpoint) as wire:
        joined = join(wire)
        sync(wire, joined)
        member = {"member_id": joined["member_id"], "generation_id_or_member_epoch": 1}
        commit(wire, **member)
        commit(wire, group_id="simple")
        clock.advance(6 * 86_400_000)

        def times(group: str) -> set[int]:
            return {at.time_ms for at in groups.positions(group).values()}

        assert until(lambda: times("g") == {clock()})
        assert times("simple") == {clock() - 6 * 86_400_000}  # nobody is at work there
