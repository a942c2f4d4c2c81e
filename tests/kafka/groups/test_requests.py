"""Group requests over the wire, in every version, and what the log makes of them."""

import glob
import os
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.common import TopicPartition
from sparklog.kafka import Endpoint
from sparklog.kafka.groups.subscriptions import subscription
from sparklog.kafka.messages import Api, ErrorCode, uuid_of
from sparklog.log.log import Log, home_of
from sparklog.storage.groups import Committed, Reader
from tests.kafka.wire import Wire
from tests.waiting import until

pytestmark = pytest.mark.sparklog(topics={"t": 3, "u": 1})
OPTIONS = {"group.initial.rebalance.delay.ms": 0}
NONE = ErrorCode.none


@pytest.fixture
def endpoint(sparklog_log: Log) -> Iterator[Endpoint]:
    for topic in ("t", "u"):
        sparklog_log.append(topic, pa.table({"value": [b"x"] * 9}), partition=0)
    with Endpoint(sparklog_log, options=OPTIONS) as found:
        yield found


def join(wire: Wire, version: int = 9, **given: Any) -> Any:
    """Join with an id that the coordinator gives, if it asks for that."""
    body = {
        "group_id": "g", "session_timeout": 600_000, "rebalance_timeout": 600_000,
        "member_id": "", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    } | given  # fmt: skip
    answer = wire.ask(Api.JOIN_GROUP, version, **body)
    if answer["error_code"] == ErrorCode.member_id_required:
        answer = wire.ask(Api.JOIN_GROUP, version, **(body | {"member_id": answer["member_id"]}))
    return answer


def sync(wire: Wire, joined: Any, version: int = 5, **given: Any) -> Any:
    body = {
        "group_id": "g", "generation_id": joined["generation_id"],
        "member_id": joined["member_id"], "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": joined["member_id"], "assignment": b"a"}],
    } | given  # fmt: skip
    return wire.ask(Api.SYNC_GROUP, version, **body)


def commit(wire: Wire, version: int = 9, **given: Any) -> list[ErrorCode]:
    """Commit offset 5 of t-0, unless told otherwise; returns the code of each partition."""
    parts = given.pop("parts", {0: 5})
    topic = given.pop("topic", {"name": "t"})
    more = {"committed_metadata": given.pop("metadata", "note")}
    if version >= 6:
        more["committed_leader_epoch"] = given.pop("epoch", 0)
    partitions = [
        {"partition_index": p, "committed_offset": offset} | more for p, offset in parts.items()
    ]
    body = {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
        "topics": [topic | {"partitions": partitions}],
    } | given  # fmt: skip
    answer = wire.ask(Api.OFFSET_COMMIT, version, **body)
    return [p["error_code"] for topic in answer["topics"] for p in topic["partitions"]]


def fetch(wire: Wire, group: str = "g", topics: Any = None) -> dict[str, dict[int, Any]]:
    """What a group has committed: {topic: {partition: (offset, epoch, metadata)}}."""
    asked = [{"group_id": group, "topics": topics}]
    (found,) = wire.ask(Api.OFFSET_FETCH, 9, groups=asked, require_stable=True)["groups"]
    assert found["error_code"] == NONE
    return {
        topic["name"]: {
            p["partition_index"]: (
                p["committed_offset"], p["committed_leader_epoch"], p["metadata"]
            )
            for p in topic["partitions"]
        }
        for topic in found["topics"]
    }  # fmt: skip


# --- members --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_beats_and_leaves_in_every_version(wire: Wire, version: int) -> None:
    joined = join(wire, version)
    assert joined["error_code"] == NONE
    assert (joined["generation_id"], joined["leader"]) == (1, joined["member_id"])
    assert joined["protocol_name"] == "range"
    assert [m["metadata"] for m in joined["members"]] == [b"m"]
    assert sync(wire, joined, min(version, 5))["assignment"] == b"a"
    who = {"group_id": "g", "generation_id": 1, "member_id": joined["member_id"]}
    assert wire.ask(Api.HEARTBEAT, min(version, 4), **who)["error_code"] == NONE
    at = min(version, 5)
    member = {"member_id": joined["member_id"]}
    gone = member if at < 3 else {"members": [member | {"group_instance_id": None}]}
    left = wire.ask(Api.LEAVE_GROUP, at, group_id="g", **gone)
    assert left["error_code"] == NONE
    if at >= 3:
        assert [m["error_code"] for m in left["members"]] == [NONE]
    unknown = wire.ask(Api.HEARTBEAT, 4, **who)["error_code"]
    assert unknown == ErrorCode.unknown_member_id


@pytest.mark.parametrize("group", ["", " g", "\n", "x" * 250])
def test_what_can_be_no_group_is_told_so_everywhere(wire: Wire, group: str) -> None:
    bad = ErrorCode.invalid_group_id
    assert join(wire, group_id=group)["error_code"] == bad
    assert sync(wire, {"generation_id": 1, "member_id": "m"}, group_id=group)["error_code"] == bad
    who = {"group_id": group, "generation_id": 1, "member_id": "m"}
    assert wire.ask(Api.HEARTBEAT, 4, **who)["error_code"] == bad
    assert wire.ask(Api.LEAVE_GROUP, 5, group_id=group, members=[])["error_code"] == bad
    assert commit(wire, group_id=group) == [bad]
    asked = [{"group_id": group, "topics": None}]
    (found,) = wire.ask(Api.OFFSET_FETCH, 9, groups=asked)["groups"]
    assert found["error_code"] == bad
    assert wire.ask(Api.OFFSET_DELETE, 0, group_id=group, topics=[])["error_code"] == bad
    (deleted,) = wire.ask(Api.DELETE_GROUPS, 2, groups_names=[group])["results"]
    assert deleted["error_code"] == bad


def test_sync_needs_the_protocol_from_version_5_on(wire: Wire) -> None:
    joined = join(wire)
    wrong = ErrorCode.inconsistent_group_protocol
    assert sync(wire, joined, protocol_name=None)["error_code"] == wrong
    assert sync(wire, joined, protocol_type=None)["error_code"] == wrong
    assert sync(wire, joined)["error_code"] == NONE


def test_who_hangs_up_while_it_waits_stops_nobody(endpoint: Endpoint, wire: Wire) -> None:
    first = join(wire)
    sync(wire, first)
    body = {
        "group_id": "g", "session_timeout": 600_000, "rebalance_timeout": 600_000,
        "member_id": "", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }  # fmt: skip
    with Wire(endpoint) as other:
        other.send(Api.JOIN_GROUP, 3, **body)  # it waits for the first one to join again
        assert until(lambda: _beat(wire, first) == ErrorCode.rebalance_in_progress)
    again = join(wire, member_id=first["member_id"])
    assert (again["generation_id"], len(again["members"])) == (2, 2)


def _beat(wire: Wire, joined: Any) -> ErrorCode:
    who = {k: joined[k] for k in ("generation_id", "member_id")}
    code: ErrorCode = wire.ask(Api.HEARTBEAT, 4, group_id="g", **who)["error_code"]
    return code


# --- committed offsets ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_is_a_registered_reader_in_every_version(
    wire: Wire, sparklog_log: Log, version: int
) -> None:
    topic_id = uuid_of(sparklog_log.topic("t").id)
    topic = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    assert commit(wire, version, topic=topic) == [NONE]
    (row,) = sparklog_log.readers().to_pylist()
    assert (row["group"], row["kind"], row["topic"], row["partition"]) == ("g", "group", "t", 0)
    assert (row["offset"], row["lag"], row["host"], row["app"]) == (5, 4, "127.0.0.1", "wire")
    assert fetch(wire) == {"t": {0: (5, 0, "note")}}
    (at,) = home_of(sparklog_log).groups.positions("g").values()
    assert at.origin is not None
    assert at.metadata == "note"


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_in_every_version(wire: Wire, sparklog_log: Log, version: int) -> None:
    commit(wire, parts={0: 5, 2: 0})
    topic_id = uuid_of(sparklog_log.topic("t").id)
    name = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
    asked = [name | {"partition_indexes": [0, 1, 2]}]
    if version < 8:
        found = wire.ask(Api.OFFSET_FETCH, version, group_id="g", topics=asked)
    else:
        groups = [{"group_id": "g", "topics": asked}, {"group_id": "none", "topics": asked}]
        found, other = wire.ask(Api.OFFSET_FETCH, version, groups=groups)["groups"]
        assert [p["committed_offset"] for p in other["topics"][0]["partitions"]] == [-1] * 3
    (topic,) = found["topics"]
    assert name.items() <= topic.items()
    parts = topic["partitions"]
    assert [p["committed_offset"] for p in parts] == [5, -1, 0]
    assert [p["metadata"] for p in parts] == ["note", "", "note"]
    assert {p["error_code"] for p in parts} == {NONE}
    if version >= 2:
        everything = {"group_id": "g", "topics": None}
        body = everything if version < 8 else {"groups": [everything]}
        answer = wire.ask(Api.OFFSET_FETCH, version, **body)
        (all_of,) = [answer] if version < 8 else answer["groups"]
        (topic,) = all_of["topics"]
        assert name.items() <= topic.items()
        assert [p["partition_index"] for p in topic["partitions"]] == [0, 2]


def test_python_goes_on_where_a_client_stopped_and_the_other_way_round(
    wire: Wire, sparklog_log: Log
) -> None:
    commit(wire)
    assert sparklog_log.read("t", group="g").read_all().num_rows == 4
    assert fetch(wire)["t"][0] == (9, 0, "")
    commit(wire, parts={0: 2})
    assert sparklog_log.read("t", group="g").read_all().num_rows == 7


def test_what_cannot_be_committed_stops_nothing_else(wire: Wire, endpoint: Endpoint) -> None:
    unknown = ErrorCode.unknown_topic_or_partition
    assert commit(wire, parts={0: 5, 7: 5}) == [NONE, unknown]
    assert commit(wire, topic={"name": "nope"}) == [unknown]
    assert commit(wire, metadata="x" * 4097) == [ErrorCode.offset_metadata_too_large]
    assert commit(wire, metadata="x" * 4096) == [NONE]
    assert commit(wire, metadata=None) == [NONE]
    assert commit(wire, parts={0: -1}) == [ErrorCode.offset_out_of_range]
    zero = {"topic_id": uuid_of("AAAAAAAAAAAAAAAAAAAAAQ")}
    assert commit(wire, 10, topic=zero) == [ErrorCode.unknown_topic_id]
    assert fetch(wire) == {"t": {0: (5, 0, "")}}


def test_only_members_of_the_generation_commit(wire: Wire) -> None:
    joined = join(wire)
    member = joined["member_id"]
    of_member = {"member_id": member, "generation_id_or_member_epoch": 1}
    assert commit(wire, **of_member) == [ErrorCode.rebalance_in_progress]
    sync(wire, joined)
    assert commit(wire, **of_member) == [NONE]
    assert commit(wire) == [ErrorCode.unknown_member_id]
    assert commit(wire, **of_member | {"member_id": "other"}) == [ErrorCode.unknown_member_id]
    wrong = of_member | {"generation_id_or_member_epoch": 2}
    assert commit(wire, **wrong) == [ErrorCode.illegal_generation]
    assert commit(wire, **of_member, group_instance_id="i") == [ErrorCode.unknown_member_id]
    gone = [{"member_id": member, "group_instance_id": None}]
    wire.ask(Api.LEAVE_GROUP, 5, group_id="g", members=gone)
    assert commit(wire, **of_member) == [ErrorCode.unknown_member_id]
    assert commit(wire) == [NONE]  # an operator may, now


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.illegal_generation), (9, ErrorCode.unknown_member_id)]
)
def test_a_member_of_a_coordinator_that_is_gone_is_to_join_again(
    wire: Wire, version: int, error: ErrorCode
) -> None:
    who = {"member_id": "m", "generation_id_or_member_epoch": 4}
    assert commit(wire, version, **who) == [error]


def test_commits_of_one_group_that_come_together_are_written_together(
    endpoint: Endpoint, sparklog_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, began, go_on = home_of(sparklog_log).groups, threading.Event(), threading.Event()
    change, written = groups.change, []

    def slow(group: str, decide: Any) -> bool:
        written.append(group)
        began.set()
        assert go_on.wait(240)
        return change(group, decide)

    monkeypatch.setattr(groups, "change", slow)
    clients = [Wire(endpoint) for _ in range(9)]
    topic = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1,
             "committed_leader_epoch": -1, "committed_metadata": ""}]}]  # fmt: skip
    for n, client in enumerate(clients):
        topic[0]["partitions"][0] |= {  # type: ignore[index]
            "partition_index": n % 3, "committed_offset": n,
        }  # fmt: skip
        client.send(Api.OFFSET_COMMIT, 9, group_id="g", generation_id_or_member_epoch=-1,
                    member_id="", topics=topic)  # fmt: skip
        assert began.wait(240)
    with Wire(endpoint) as other:
        other.send(Api.OFFSET_COMMIT, 9, group_id="h", generation_id_or_member_epoch=-1,
                   member_id="", topics=topic)  # fmt: skip
        assert until(lambda: written == ["g", "h"])
        other.send(Api.API_VERSIONS, 3)
        go_on.set()
        answers = [client.receive() for client in clients]
        other.receive()
    codes = {a["topics"][0]["partitions"][0]["error_code"] for a in answers}
    assert codes == {NONE}
    assert written == ["g", "h", "g"]
    with Wire(endpoint) as other:
        assert {p: at[0] for p, at in fetch(other)["t"].items()} == {0: 6, 1: 7, 2: 8}
    for client in clients:
        client.close()


def test_a_full_disk_is_to_be_tried_again_and_the_group_stays(
    endpoint: Endpoint, wire: Wire, sparklog_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(group: str, decide: Any) -> bool:
        raise sparklog.StorageUnavailableError("no space left")

    monkeypatch.setattr(home_of(sparklog_log).groups, "change", full)
    assert commit(wire) == [ErrorCode.coordinator_not_available]
    monkeypatch.undo()
    assert commit(wire) == [NONE]


def test_a_log_that_is_away_is_to_be_tried_again(
    endpoint: Endpoint, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit(wire) == [NONE]

    async def away(*given: Any, **named: Any) -> Any:
        raise sparklog.StorageUnavailableError("away", passing=True)

    partitions = endpoint._server._broker.partitions
    monkeypatch.setattr(partitions, "topics", away)
    monkeypatch.setattr(partitions, "topic_names", away)
    later = ErrorCode.coordinator_not_available
    assert commit(wire) == [later]
    assert commit(wire, 10, topic={"topic_id": uuid_of("AAAAAAAAAAAAAAAAAAAAAQ")}) == [later]
    everything = {"group_id": "g", "topics": None}
    (found,) = wire.ask(Api.OFFSET_FETCH, 10, groups=[everything])["groups"]
    assert found["error_code"] == later
    asked = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    assert wire.ask(Api.OFFSET_DELETE, 0, group_id="g", topics=asked)["error_code"] == later
    assert beat(wire)["error_code"] == later
    assert fetch(wire) == {"t": {0: (5, 0, "note")}}  # names it has by itself
    monkeypatch.undo()
    assert commit(wire) == [NONE]


def test_a_log_dir_that_is_unmounted_is_no_reason_to_keep_offsets_in_memory(
    endpoint: Endpoint, wire: Wire, sparklog_path: str
) -> None:
    os.rename(sparklog_path, f"{sparklog_path}-away")
    os.mkdir(sparklog_path)
    try:
        assert join(wire)["error_code"] == ErrorCode.coordinator_not_available
        assert os.listdir(sparklog_path) == []  # it may be a mount point
    finally:
        os.rmdir(sparklog_path)
        os.rename(f"{sparklog_path}-away", sparklog_path)
    assert join(wire)["error_code"] == NONE
    assert commit(wire, group_id="h") == [NONE]
    assert glob.glob(f"{sparklog_path}/sparklog.readers-*")


def test_a_damaged_group_is_no_group_without_offsets(
    wire: Wire, sparklog_path: str
) -> None:
    commit(wire)
    (file,) = glob.glob(f"{sparklog_path}/sparklog.readers-*")
    with open(file, "r+b") as damaged:
        damaged.truncate(20)
    (found,) = wire.ask(Api.OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": None}])["groups"]
    assert found["error_code"] == ErrorCode.unknown_server_error
    asked = [{"name": "t", "partition_indexes": [0]}]
    (topic,) = wire.ask(Api.OFFSET_FETCH, 1, group_id="g", topics=asked)["topics"]
    assert topic["partitions"][0]["error_code"] == ErrorCode.unknown_server_error
    assert join(wire)["error_code"] == NONE


# --- operators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found_in_every_version(
    wire: Wire, endpoint: Endpoint, version: int
) -> None:
    asked = {"key": "g"} if version < 4 else {"coordinator_keys": ["g", "h"]}
    answer = wire.ask(Api.FIND_COORDINATOR, version, **asked)
    for found in [answer] if version < 4 else answer["coordinators"]:
        assert (found["node_id"], found["host"], found["port"]) == (1, "127.0.0.1", endpoint.port)
        assert found["error_code"] == NONE
    if version >= 4:
        assert [found["key"] for found in answer["coordinators"]] == ["g", "h"]


def test_why_there_is_no_coordinator_of_transactions_or_share_groups(wire: Wire) -> None:
    asked = {"coordinator_keys": ["x"]}
    (found,) = wire.ask(Api.FIND_COORDINATOR, 6, key_type=1, **asked)["coordinators"]
    assert found["error_code"] == ErrorCode.transactional_id_authorization_failed
    assert "leave transactional.id out" in found["error_message"]
    (found,) = wire.ask(Api.FIND_COORDINATOR, 6, key_type=2, **asked)["coordinators"]
    assert found["error_code"] == ErrorCode.invalid_request
    assert "use a consumer group" in found["error_message"]
    (found,) = wire.ask(Api.FIND_COORDINATOR, 6, key_type=0, **asked)["coordinators"]
    assert found["error_code"] == NONE
    assert join(wire, group_id="x")["error_code"] == NONE
    found = wire.ask(Api.FIND_COORDINATOR, 1, key_type=1, key="x")
    assert found["error_code"] == ErrorCode.transactional_id_authorization_failed


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described_in_every_version(wire: Wire, version: int) -> None:
    joined = join(wire)
    sync(wire, joined)
    commit(wire, group_id="simple")
    names = ["g", "simple", "nobody"]
    stable, empty, dead = wire.ask(Api.DESCRIBE_GROUPS, version, groups=names)["groups"]
    assert (stable["group_state"], stable["protocol_type"]) == ("Stable", "consumer")
    assert stable["protocol_data"] == "range"
    (member,) = stable["members"]
    assert (member["client_id"], member["client_host"]) == ("wire", "/127.0.0.1")
    assert (member["member_metadata"], member["member_assignment"]) == (b"m", b"a")
    assert (empty["group_state"], empty["protocol_type"], empty["members"]) == ("Empty", "", [])
    assert dead["group_state"] == "Dead"
    assert dead["error_code"] == (NONE if version < 6 else ErrorCode.group_id_not_found)


def test_groups_are_listed_by_state_and_type(wire: Wire, sparklog_log: Log) -> None:
    sync(wire, join(wire))
    commit(wire, group_id="simple")
    sparklog_log.read("t", group="python").read_all()

    def listed(**filters: Any) -> dict[str, tuple[str, str]]:
        found = wire.ask(Api.LIST_GROUPS, 5, **filters)["groups"]
        assert {each["group_type"] for each in found} <= {"Classic"}
        return {g["group_id"]: (g["group_state"], g["protocol_type"]) for g in found}

    empty = {"simple": ("Empty", ""), "python": ("Empty", "")}
    everything = {"g": ("Stable", "consumer"), **empty}
    assert listed() == everything
    assert listed(states_filter=["eMPTY"]) == empty
    assert listed(states_filter=["Stable", "Dead"]) == {"g": ("Stable", "consumer")}
    assert listed(types_filter=["Consumer"]) == {}
    assert listed(types_filter=["classic"]) == everything
    for version in range(5):
        groups = wire.ask(Api.LIST_GROUPS, version)["groups"]
        assert {g["group_id"] for g in groups} == everything.keys()


def test_groups_without_members_are_deleted(wire: Wire, sparklog_log: Log) -> None:
    sync(wire, join(wire))
    commit(wire, group_id="simple")
    names = ["g", "simple", "nobody", "simple"]
    results = wire.ask(Api.DELETE_GROUPS, 2, groups_names=names)["results"]
    assert {r["group_id"]: r["error_code"] for r in results} == {
        "g": ErrorCode.non_empty_group, "simple": NONE, "nobody": ErrorCode.group_id_not_found,
    }  # fmt: skip
    assert sparklog_log.readers().num_rows == 0
    assert fetch(wire, "simple") == {}


def test_offsets_of_topics_that_nobody_reads_are_deleted(wire: Wire) -> None:
    metadata = [{"name": "range", "metadata": subscription(["t"])}]
    joined = join(wire, protocols=metadata)
    sync(wire, joined)
    who = {"member_id": joined["member_id"], "generation_id_or_member_epoch": 1}
    commit(wire, **who)
    commit(wire, topic={"name": "u"}, **who)
    asked = [
        {"name": name, "partitions": [{"partition_index": 0}]} for name in ("t", "u", "nope")
    ]

    def deleted(group: str) -> Any:
        answer = wire.ask(Api.OFFSET_DELETE, 0, group_id=group, topics=asked)
        codes = {t["name"]: t["partitions"][0]["error_code"] for t in answer["topics"]}
        return answer["error_code"], codes

    unknown = ErrorCode.unknown_topic_or_partition
    subscribed = ErrorCode.group_subscribed_to_topic
    assert deleted("g") == (NONE, {"t": subscribed, "u": NONE, "nope": unknown})
    assert fetch(wire).keys() == {"t"}
    assert deleted("nobody") == (ErrorCode.group_id_not_found, {})
    gone = [{"member_id": joined["member_id"], "group_instance_id": None}]
    wire.ask(Api.LEAVE_GROUP, 5, group_id="g", members=gone)
    assert deleted("g") == (NONE, {"t": NONE, "u": NONE, "nope": unknown})
    assert fetch(wire) == {}


def test_a_streaming_query_is_seen_and_left_alone(wire: Wire, sparklog_log: Log) -> None:
    query = Reader("q", "query", "spark-host", "app", batch=3, run="r")
    groups, key = home_of(sparklog_log).groups, TopicPartition("t", 0)
    groups.commit_query(query, {key: 4}, now_ms=10**12, planner="p")
    before = groups.reader("q")
    (described,) = wire.ask(Api.DESCRIBE_GROUPS, 6, groups=["q"])["groups"]
    assert described["group_state"] == "Stable"
    (member,) = described["members"]
    assert (member["client_id"], member["client_host"]) == ("app", "/spark-host")
    (listed,) = wire.ask(Api.LIST_GROUPS, 5)["groups"]
    assert (listed["group_id"], listed["group_state"]) == ("q", "Stable")
    assert fetch(wire, "q")["t"][0][0] == 4
    refused = ErrorCode.group_authorization_failed
    assert join(wire, group_id="q")["error_code"] == refused
    assert commit(wire, group_id="q") == [refused]
    (deleted,) = wire.ask(Api.DELETE_GROUPS, 2, groups_names=["q"])["results"]
    assert deleted["error_code"] == ErrorCode.non_empty_group
    asked = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    answer = wire.ask(Api.OFFSET_DELETE, 0, group_id="q", topics=asked)
    assert answer["error_code"] == ErrorCode.non_empty_group
    assert groups.reader("q") == before


def test_a_group_in_memory_and_a_query_that_takes_its_name_later(
    wire: Wire, sparklog_log: Log
) -> None:
    joined = join(wire)
    sync(wire, joined)
    query = Reader("g", "query", "h", "app", batch=1, run="r")
    key = TopicPartition("t", 0)
    home_of(sparklog_log).groups.commit_query(query, {key: 4}, now_ms=10**12, planner="p")
    who = {"member_id": joined["member_id"], "generation_id_or_member_epoch": 1}
    assert commit(wire, **who) == [ErrorCode.group_authorization_failed]
    assert home_of(sparklog_log).groups.positions("g")[key].offset == 4


def test_a_client_gets_the_epoch_of_what_python_read(wire: Wire, sparklog_log: Log) -> None:
    home_of(sparklog_log).groups.commit(
        "g", {TopicPartition("t", 0): 3}, now_ms=1, host="h", origins={}
    )
    assert fetch(wire)["t"][0] == (3, -1, "")
    sparklog_log.commit_offsets("g", {"t": {0: 4}})
    assert fetch(wire)["t"][0] == (4, 0, "")
    (at,) = home_of(sparklog_log).groups.positions("g").values()
    assert isinstance(at, Committed)


# --- the consumer protocol ------------------------------------------------------------------------


def beat(wire: Wire, version: int = 1, **given: Any) -> Any:
    """Join by the consumer protocol, unless told otherwise."""
    body = {
        "group_id": "c", "member_id": "m", "member_epoch": 0, "instance_id": None,
        "rack_id": None, "rebalance_timeout": 600_000, "subscribed_topic_names": ["t"],
        "server_assignor": None, "topic_partitions": [],
    } | given  # fmt: skip
    return wire.ask(Api.CONSUMER_GROUP_HEARTBEAT, version, **body)


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_of_the_consumer_protocol_in_every_version(
    wire: Wire, sparklog_log: Log, version: int
) -> None:
    joined = beat(wire, version)
    assert (joined["error_code"], joined["member_epoch"]) == (NONE, 1)
    assert joined["heartbeat_interval"] == 5000
    (assigned,) = joined["assignment"]["topic_partitions"]
    topic_id = uuid_of(sparklog_log.topic("t").id)
    assert (assigned["topic_id"], list(assigned["partitions"])) == (topic_id, [0, 1, 2])
    (group,) = wire.ask(Api.CONSUMER_GROUP_DESCRIBE, version, group_ids=["c"])["groups"]
    assert (group["group_state"], group["assignor_name"]) == ("Stable", "uniform")
    (member,) = group["members"]
    (own,) = member["assignment"]["topic_partitions"]
    assert (own["topic_name"], list(own["partitions"])) == ("t", [0, 1, 2])
    (listed,) = wire.ask(Api.LIST_GROUPS, 5, types_filter=["consumer"])["groups"]
    assert (listed["group_id"], listed["group_state"], listed["group_type"]) == (
        "c", "Stable", "Consumer",
    )  # fmt: skip
    of_member = {"group_id": "c", "member_id": "m", "generation_id_or_member_epoch": 1}
    assert commit(wire, **of_member) == [NONE]
    stale = of_member | {"generation_id_or_member_epoch": 2}
    assert commit(wire, **stale) == [ErrorCode.stale_member_epoch]
    asked = {"group_id": "c", "member_id": "m", "topics": None}
    codes = [
        wire.ask(Api.OFFSET_FETCH, 9, groups=[asked | {"member_epoch": epoch}])["groups"][0]
        for epoch in (1, 2)
    ]
    assert [g["error_code"] for g in codes] == [NONE, ErrorCode.stale_member_epoch]
    left = beat(wire, version, member_epoch=-1, rebalance_timeout=-1,
                subscribed_topic_names=None, topic_partitions=None)  # fmt: skip
    assert (left["error_code"], left["member_epoch"]) == (NONE, -1)
    (deleted,) = wire.ask(Api.DELETE_GROUPS, 2, groups_names=["c"])["results"]
    assert deleted["error_code"] == NONE


def test_the_protocols_keep_apart(wire: Wire, sparklog_log: Log) -> None:
    beat(wire)
    sync(wire, join(wire))
    wrong = ErrorCode.inconsistent_group_protocol
    assert join(wire, group_id="c")["error_code"] == wrong
    refused = beat(wire, group_id="g")
    assert refused["error_code"] == ErrorCode.group_id_not_found
    assert refused["error_message"] == "Group g is not a consumer group."
    (described,) = wire.ask(Api.DESCRIBE_GROUPS, 6, groups=["c"])["groups"]
    assert described["error_code"] == ErrorCode.group_id_not_found
    (described,) = wire.ask(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"])["groups"]
    assert described["error_code"] == ErrorCode.group_id_not_found
    (deleted,) = wire.ask(Api.DELETE_GROUPS, 2, groups_names=["c"])["results"]
    assert deleted["error_code"] == ErrorCode.non_empty_group
    query = Reader("q", "query", "h", "app", batch=1, run="r")
    groups = home_of(sparklog_log).groups
    groups.commit_query(query, {TopicPartition("t", 0): 4}, now_ms=10**12, planner="p")
    assert beat(wire, group_id="q")["error_code"] == ErrorCode.group_authorization_failed
    assert beat(wire, group_id="")["error_code"] == ErrorCode.invalid_group_id
    unknown = beat(wire, member_id="x", member_epoch=5)
    assert unknown["error_code"] == ErrorCode.unknown_member_id


def test_a_commit_keeps_the_members_session(
    endpoint: Endpoint, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a heartbeat does. Source: ClassicGroup.validateOffsetCommit, GroupMetadataManager."""
    joined = join(wire)
    sync(wire, joined)
    handler: Any = endpoint._server.served[Api.OFFSET_COMMIT].handle
    classic, kept = handler.__self__._coordinator.classic, []
    monkeypatch.setattr(classic, "keep", lambda group, member_id: kept.append(member_id))
    who = {"member_id": joined["member_id"], "generation_id_or_member_epoch": 1}
    assert commit(wire, **who | {"generation_id_or_member_epoch": 2}) != [NONE]
    assert kept == []
    assert commit(wire, **who) == [NONE]
    assert kept == [joined["member_id"]]
