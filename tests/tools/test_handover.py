"""Handing a log over: what is said, what is refused, and every crash of it. No broker runs here.

What a real broker makes of it: tests/kafka/test_handover.py.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError, LogLockedError, UnknownTopicError
from sparklog.format.checkpoint_files import topic_id_bytes, topic_id_text
from sparklog.format.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    OtherRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sparklog.fs import LOCAL
from sparklog.log.log import home_of
from sparklog.logdir.broker_lockout import is_marked_open
from sparklog.logdir.closing import close_for_handover
from sparklog.logdir.cluster_metadata import METADATA_DIR, read_bootstrap, read_cluster_metadata
from sparklog.logdir.home import commits_of
from sparklog.logdir.meta_properties import is_kept_from_brokers, read_properties
from sparklog.service import verify
from sparklog.testing.crashes import every_crash
from sparklog.testing.crashfs import CrashFS
from sparklog.tools.handover import log_handover
from sparklog.tools.handover.existing_cluster import hand_over_into
from sparklog.tools.handover.log_handover import BrokerSettings, hand_over
from sparklog.tools.handover.server_properties import server_properties
from tests import depth
from tests.tools.handovers import known, run_broker, starts

OTHER_ID = topic_id_text(b"x" * 16)


def _rows(*values: bytes) -> pa.Table:
    return pa.table({"value": list(values)})


def _make(path: object, **given: object) -> dict[str, str]:
    """Two topics, one of two partitions; return their ids."""
    with sparklog.open(path, "rw", **given) as log:  # type: ignore[arg-type]
        log.create_topic("t", 2, config={"retention.ms": -1, "segment.idle.ms": 7})
        log.create_topic("u")
        log.append("t", _rows(b"1", b"2", b"3"), partition=1)
        log.delete_records("t", {1: 1})
        return {name: info.id for name, info in log.topics().items()}


def _tree(path: Path) -> dict[str, str]:
    return {
        str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else ""
        for p in path.rglob("*")
    }


def _topic_records(name: str, topic_id: str, node: int = 1) -> list[TopicRecord | PartitionRecord]:
    partition = PartitionRecord(
        partition=0, topic_id=topic_id, replicas=(node,), isr=(node,), leader=node,
        leader_epoch=0, partition_epoch=0, directories=(OTHER_ID,),
    )  # fmt: skip
    return [TopicRecord(name, topic_id), partition]


def test_check_changes_nothing_and_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    ids = _make(path)
    before = _tree(tmp_path)
    told = hand_over(path, BrokerSettings(properties_file=str(tmp_path / "p")), check=True)
    assert _tree(tmp_path) == before
    done = hand_over(path, BrokerSettings(properties_file=str(tmp_path / "p")))
    assert told.topics == done.topics
    assert (told.notes, told.metadata_records) == (done.notes, done.metadata_records)
    assert {topic.name: topic.id for topic in done.topics if topic.name in ids} == ids
    held = {topic.name: topic for topic in done.topics}["t"].partitions[1]
    assert (held.start, held.end) == (1, 3)
    assert (tmp_path / "p").read_text() == done.properties
    assert starts(LOCAL, [str(path)])
    assert not is_marked_open(LOCAL, str(path))


def test_done_twice_it_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    _make(path)
    first = hand_over(path)
    raw = (path / "bootstrap.checkpoint").read_bytes()
    properties = read_properties(LOCAL, str(path))
    again = hand_over(path)
    assert (again.cluster_id, again.node_id) == (first.cluster_id, first.node_id)
    assert again.topics == first.topics
    assert read_properties(LOCAL, str(path)) == properties
    assert len((path / "bootstrap.checkpoint").read_bytes()) == len(raw)


def test_one_that_a_crash_left_open_is_recovered_first(tmp_path: Path) -> None:
    log = sparklog.open(tmp_path / "log", "rw")
    log.create_topic("t")
    log.append("t", _rows(b"1"))
    home_of(log).commits.release()  # type: ignore[attr-defined]
    told = hand_over(tmp_path / "log", check=True)
    assert any("left it open" in note for note in told.notes)
    done = hand_over(tmp_path / "log")
    assert not done.notes
    assert starts(LOCAL, [str(tmp_path / "log")])


def test_several_log_dirs_each_with_an_id_of_its_own(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    _make(f"{a},{b}")
    done = hand_over(
        f"{a},{b}", BrokerSettings(node_id=5, cluster_id="MkU3OEVBNTcwNTJENDM2Qg")
    )
    found = [read_properties(LOCAL, each) for each in (a, b)]
    assert {each["cluster.id"] for each in found} == {"MkU3OEVBNTcwNTJENDM2Qg"}
    assert {each["node.id"] for each in found} == {"5"}
    ids = {each: said["directory.id"] for each, said in zip((a, b), found, strict=True)}
    assert len(set(ids.values())) == 2
    assert f"log.dirs={a},{b}\n" in done.properties
    assert "5@localhost:9093" in done.properties
    cluster = known(LOCAL, a)
    for topic in done.topics:
        for number, held in topic.partitions.items():
            there = cluster.topics[topic.name].partitions[number]
            assert (list(there.directories), list(there.replicas)) == ([ids[held.directory]], [5])
    with pytest.raises(InvalidRequestError, match="log dir number"):
        hand_over(b)


def test_a_log_that_is_open_elsewhere_is_refused_and_goes_on(tmp_path: Path) -> None:
    _make(tmp_path / "log")
    with sparklog.open(tmp_path / "log", "rw") as log:
        with pytest.raises(LogLockedError, match="open elsewhere, or in this process"):
            hand_over(tmp_path / "log")
        log.append("u", _rows(b"1"))
    assert not starts(LOCAL, [str(tmp_path / "log")])
    hand_over(tmp_path / "log")


def test_an_offline_partition_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    _make(path)
    (path / "t-1").rename(tmp_path / "away")
    for check in (True, False):
        with pytest.raises(sparklog.PartitionOfflineError):
            hand_over(path, check=check)
    assert not starts(LOCAL, [str(path)])
    (tmp_path / "away").rename(path / "t-1")
    hand_over(path)
    assert starts(LOCAL, [str(path)])


@pytest.mark.parametrize("cure", ["restore", "give up"])
def test_a_partition_that_is_not_whole_is_restored_or_given_up(tmp_path: Path, cure: str) -> None:
    """As `sparklog verify` says, too."""
    path = tmp_path / "log"
    _make(path)
    log = sparklog.open(path, "rw")
    log.append("t", _rows(b"1"), 1)
    file = max((path / "t-1").glob("*.log"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    with pytest.raises(InvalidRequestError, match=r"isn't complete .*give them up by") as refusal:
        close_for_handover(commits_of(log), lambda: None)
    assert "`sparklog verify` reports why" in str(refusal.value)
    assert not verify(path).ok
    if cure == "restore":
        file.write_bytes(whole)
    else:
        assert run(["verify", str(path), "--give-up"]) == 0
    hand_over(path)
    assert starts(LOCAL, [str(path)])
    with sparklog.open(path) as log:
        left = log.read("t", [1], columns=["value"]).read_all()["value"].to_pylist()
    assert left == ([b"2", b"3", b"1"] if cure == "restore" else [])


@pytest.mark.parametrize("name", ["lost+found", "checkpoint-1", "backup"])
def test_directories_that_a_broker_would_not_leave_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    _make(path)
    (path / name).mkdir()
    (path / name / "x").touch()
    with pytest.raises(InvalidRequestError, match="move it away"):
        hand_over(path)
    assert not starts(LOCAL, [str(path)])
    shutil.rmtree(path / name)
    (path / "t-7-stray").mkdir()
    (path / "t-8.0123456789abcdef0123456789abcdef-delete").mkdir()
    hand_over(path)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"listeners": "PLAINTEXT://localhost:9092"}, "must contain a listener CONTROLLER"),
        ({"listeners": "CONTROLLER://localhost:9093"}, "a listener for clients"),
        ({"listeners": "localhost:9092,CONTROLLER://:1"}, "NAME://HOST:PORT"),
        ({"listeners": "A://h:70000,CONTROLLER://:1"}, "NAME://HOST:PORT"),
        ({"listeners": "A://h:1,A://h:2,CONTROLLER://:1"}, "each name once"),
        ({"cluster_id": "me"}, "16 bytes"),
        ({"node_id": -1}, "got -1"),
        ({"metadata_log_dir": "/nowhere"}, "does not exist"),
    ],
)
def test_what_can_not_be_is_refused_and_leaves_the_log(
    tmp_path: Path, given: dict[str, object], why: str
) -> None:
    _make(tmp_path / "log")
    broker = BrokerSettings(**given)  # type: ignore[arg-type]
    for check in (True, False):
        with pytest.raises(InvalidRequestError, match=why):
            hand_over(tmp_path / "log", broker, check=check)
    assert not starts(LOCAL, [str(tmp_path / "log")])
    assert not is_marked_open(LOCAL, str(tmp_path / "log"))


def test_a_file_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    _make(tmp_path / "log")
    (tmp_path / "mine").write_text("node.id=7\n")
    with pytest.raises(InvalidRequestError, match="choose another file"):
        hand_over(tmp_path / "log", BrokerSettings(properties_file=str(tmp_path / "mine")))
    hand_over(tmp_path / "log", BrokerSettings(properties_file=str(tmp_path / "ours")))
    hand_over(tmp_path / "log", BrokerSettings(properties_file=str(tmp_path / "ours")))


def test_listeners_of_ones_own() -> None:
    text = server_properties(
        ["/a"], node_id=3, listeners="lan://0.0.0.0:9, CONTROLLER://[::1]:10,SSL://:11",
        metadata_log_dir="/m",
    )  # fmt: skip
    lines = dict(line.split("=", 1) for line in text.splitlines()[1:])
    assert lines["listeners"] == "LAN://0.0.0.0:9,CONTROLLER://[::1]:10,SSL://:11"
    assert lines["controller.quorum.voters"] == "3@[::1]:10"
    assert lines["inter.broker.listener.name"] == "LAN"
    assert "LAN:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL" in lines["listener.security.protocol.map"]
    assert lines["metadata.log.dir"] == "/m"


def test_a_path_with_spaces_and_umlauts(tmp_path: Path) -> None:
    """java.util.Properties takes a file for ISO 8859-1; a shell splits at spaces."""
    path = tmp_path / "Übung 日 \U0001f600"
    path.mkdir()
    settings = path / "server.properties"
    _make(path / "log")
    done = hand_over(path / "log", BrokerSettings(properties_file=str(settings)))
    assert shlex.split(done.command) == ["kafka-server-start.sh", str(settings)]
    line = next(each for each in settings.read_bytes().splitlines() if each.startswith(b"log.dirs"))
    assert line.endswith(b"/\\u00dcbung \\u65e5 \\ud83d\\ude00/log")


def test_what_format_was_told_stays(tmp_path: Path) -> None:
    """`kafka-storage format --add-scram` ran before sparklog opened the directory."""
    path = tmp_path / "log"
    path.mkdir()
    (path / "meta.properties").write_text(f"version=1\nnode.id=4\ncluster.id={OTHER_ID}\n")
    scram = OtherRecord(11, b"\x01\x0b\x00\x00")
    broker = ConfigRecord(4, "", "a", "b")
    feature = log_handover.feature_records()[0]
    from sparklog.tools.handover.bootstrap_checkpoint import write_bootstrap

    write_bootstrap(LOCAL, str(path), [feature, scram, broker], time_ms=1)
    _make(path)
    done = hand_over(path)
    assert (done.node_id, done.cluster_id) == (4, OTHER_ID)
    found = read_bootstrap(LOCAL, str(path))
    assert found is not None
    assert (found.features, found.others) == ({"metadata.version": 27}, [scram, broker])
    assert {"t", "u"} <= found.topics.keys()
    for given in ({"node_id": 1}, {"cluster_id": topic_id_text(b"y" * 16)}):
        with pytest.raises(InvalidRequestError, match="leave it out"):
            hand_over(path, BrokerSettings(**given))  # type: ignore[arg-type]


def test_a_directory_of_zookeepers_time_keeps_its_ids(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.mkdir()
    (path / "meta.properties").write_text(f"version=0\nbroker.id=4\ncluster.id={OTHER_ID}\n")
    _make(path)
    done = hand_over(path)
    assert (done.node_id, done.cluster_id, done.is_new_cluster) == (4, OTHER_ID, True)
    assert "broker.id" not in read_properties(LOCAL, str(path))


def test_a_cluster_whose_metadata_log_lies_elsewhere(tmp_path: Path) -> None:
    path, metadata = tmp_path / "log", tmp_path / "metadata"
    _make(path)
    hand_over(path)
    run_broker(LOCAL, [str(path)])
    metadata.mkdir()
    (path / METADATA_DIR).rename(metadata / METADATA_DIR)
    (path / "bootstrap.checkpoint").unlink()
    with sparklog.open(path, "rw") as log:
        log.create_topic("v")
    with pytest.raises(InvalidRequestError, match="metadata log of the cluster is not in"):
        hand_over(path)
    with pytest.raises(InvalidRequestError, match=r"exist: pass the broker's metadata\.log\.dir"):
        hand_over(path, BrokerSettings(metadata_log_dir=str(tmp_path / "away")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequestError, match=r"contains no .*: pass the broker's metadata"):
        hand_over(path, BrokerSettings(metadata_log_dir=str(tmp_path / "empty")))
    done = hand_over(path, BrokerSettings(metadata_log_dir=str(metadata)))
    assert not done.is_new_cluster
    assert f"metadata.log.dir={metadata}\n" in done.properties
    assert "v" in known(LOCAL, str(metadata)).topics


def test_a_cluster_of_several_nodes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    _make(path)
    hand_over(path)
    other = OtherRecord(0, bytes.fromhex("010003000000020a"))
    run_broker(LOCAL, [str(path)], other)
    assert known(LOCAL, str(path)).nodes == {2}
    with pytest.raises(InvalidRequestError, match=r"nodes too, \[2\].*Copy the records"):
        hand_over(path)
    assert starts(LOCAL, [str(path)])
    with sparklog.open(path) as log:  # as an export to Kafka reads them
        assert log.read("t").read_all().num_rows == 2


def test_an_old_cluster_is_upgraded_first(tmp_path: Path) -> None:
    """The refusal leaves the directory to its broker, so that the cluster can be upgraded."""
    path = tmp_path / "log"
    _make(path)
    hand_over(path)
    run_broker(LOCAL, [str(path)], FeatureLevelRecord("metadata.version", 14))
    with pytest.raises(InvalidRequestError, match="upgrade the cluster first"):
        hand_over(path)
    assert starts(LOCAL, [str(path)])
    run_broker(LOCAL, [str(path)], FeatureLevelRecord("metadata.version", 27))
    assert not hand_over(path).is_new_cluster
    assert starts(LOCAL, [str(path)])


def test_of_two_metadata_logs_one_is_moved_away(tmp_path: Path) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    path = ",".join(map(str, dirs))
    _make(path)
    hand_over(path)
    run_broker(LOCAL, [str(each) for each in dirs])
    shutil.copytree(dirs[0] / METADATA_DIR, dirs[1] / METADATA_DIR)
    with pytest.raises(InvalidRequestError, match="move away the directory that is not in"):
        hand_over(path)
    (dirs[1] / METADATA_DIR).rename(tmp_path / "away")
    hand_over(path)
    assert starts(LOCAL, [str(each) for each in dirs])


def test_what_clients_changed_is_taken_back_and_what_we_changed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    ids = _make(path)
    hand_over(path)
    run_broker(
        LOCAL, [str(path)], ConfigRecord(2, "t", "retention.ms", "5000"),
        ConfigRecord(2, "t", "flush.ms", "9"), ConfigRecord(2, "u", "no.such.key", "x"),
        ConfigRecord(2, "u", "segment.ms", "604800000"),  # the default, said aloud
        ConfigRecord(2, "u", "cleanup.policy", "nonsense"),
        *_topic_records("theirs", OTHER_ID),
    )  # fmt: skip
    with sparklog.open(path, "rw") as log:
        config = log.topic("t").config.to_dict()
        assert config == {"retention.ms": "5000", "flush.ms": "9", "segment.idle.ms": "7"}
        after = {"segment.ms": "604800000", "retention.ms": "-1"}
        assert log.topic("u").config.to_dict() == after
        log.alter_topic("t", config={"flush.ms": None, "retention.ms": 7000})
        log.delete_topic("u")
        log.create_topic("u")
        new = log.topic("u").id
    done = hand_over(path)
    assert any("theirs is a topic of the cluster" in note for note in done.notes)
    assert any(f"u (id {ids['u']}) was deleted here" in note for note in done.notes)
    cluster = known(LOCAL, str(path))
    assert cluster.topics["t"].config == {"retention.ms": "7000"}
    keeps = {"retention.ms": "-1"}  # a broker's default would delete after a week
    assert (cluster.topics["u"].id, cluster.topics["u"].config) == (new, keeps)
    assert "theirs" in cluster.topics
    assert hand_over(path).metadata_records == 0


def test_configs_that_only_the_cluster_understands_stay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    _make(path)
    hand_over(path)
    run_broker(
        LOCAL, [str(path)], ConfigRecord(2, "u", "no.such.key", "x"),
        ConfigRecord(2, "u", "segment.ms", "604800000"),
    )  # fmt: skip
    with sparklog.open(path, "rw") as log:
        after = {"segment.ms": "604800000", "retention.ms": "-1"}
        assert log.topic("u").config.to_dict() == after
    assert hand_over(path).metadata_records == 1  # the ledger's, which has the config: its epoch
    assert hand_over(path).metadata_records == 0
    config = known(LOCAL, str(path)).topics["u"].config
    assert config == {"no.such.key": "x", "segment.ms": "604800000", "retention.ms": "-1"}


def test_configs_of_the_cluster_are_not_taken_twice(tmp_path: Path) -> None:
    """What was altered here since counts, though Kafka's clean mark is lost meanwhile."""
    path = tmp_path / "log"
    _make(path)
    hand_over(path)
    run_broker(LOCAL, [str(path)], ConfigRecord(2, "t", "retention.ms", "5000"))
    with sparklog.open(path, "rw") as log:
        log.alter_topic("t", config={"retention.ms": 6000})
    (path / ".kafka_cleanshutdown").unlink()
    with sparklog.open(path, "rw") as log:
        assert log.topic("t").config.retention_ms == 6000


def test_a_damaged_metadata_log_is_no_obstacle_to_taking_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    _make(path)
    hand_over(path)
    run_broker(LOCAL, [str(path)], RemoveTopicRecord(OTHER_ID))
    with sparklog.open(path, "rw") as log:
        assert log.topic("t").config.retention_ms == -1
    assert "which is unknown" in caplog.text
    with pytest.raises(sparklog.DataCorruptionError, match="which is unknown"):
        hand_over(path)


def test_a_producers_id_is_never_given_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    _make(path)
    with sparklog.open(path, "rw") as log:
        log.append("u", _rows(b"1"), partition=0, producer=(12_345, 0, 0))
        made_up = 2**63 - 1  # by a client: nothing could come after it
        log.append("u", _rows(b"1"), partition=0, producer=(made_up, 0, 0))
    hand_over(path)
    assert known(LOCAL, str(path)).next_producer_id == 13_000


def test_groups_within_what_the_broker_holds(tmp_path: Path) -> None:
    path, file = tmp_path / "log", tmp_path / "g.csv"
    _make(path)
    with sparklog.open(path, "rw") as log:
        log.commit_offsets("one", {"t": {1: 3}})
        log.commit_offsets("a b", {"t": {1: 2, 0: 0}, "u": {0: 0}})
        log.delete_records("t", {1: 3})
    done = hand_over(path, BrokerSettings(groups_file=str(file)))
    assert file.read_text().splitlines() == [
        "a b,t,0,0", "a b,t,1,3", "a b,u,0,0", "one,t,1,3"
    ]  # fmt: skip
    assert "--group 'a b' --group one" in done.groups_command


def _is_told(fs: CrashFS, home: str, ids: dict[str, str]) -> bool:
    cluster = known(fs, home)
    whole = {name: topic.id for name, topic in cluster.topics.items() if topic.partitions}
    return ids.items() <= whole.items() and "__sparklog_commits" in whole


@pytest.mark.deep
def test_every_crash_of_the_first_handover() -> None:
    """Either no broker starts, or it knows everything; and the log is whole in any case."""
    disk = CrashFS()
    disk.mkdir("/a"), disk.mkdir("/b")
    disk.sync_dir("/")
    ids = _make("/a,/b", fs=disk)
    started = 0
    crashes = every_crash(lambda fs: hand_over("/a,/b", fs=fs), fs=disk)
    for crash in itertools.islice(crashes, 0, None, depth.CUT_EVERY):
        fs = crash.fs
        if starts(fs, ["/a", "/b"]):
            started += 1
            assert _is_told(fs, "/a", ids), crash.how
        with sparklog.open("/a,/b", "rw", fs=fs) as log:
            assert {name: info.id for name, info in log.topics().items()} == ids, crash.how
            assert log.offsets("t") == {0: (0, 0), 1: (1, 3)}, crash.how
        assert not starts(fs, ["/a", "/b"]), crash.how
        hand_over("/a,/b", fs=fs)
        assert _is_told(fs, "/a", ids), crash.how
    assert started


@pytest.mark.deep
def test_every_crash_of_another_handover() -> None:
    disk = CrashFS()
    disk.mkdir("/a")
    disk.sync_dir("/")
    ids = _make("/a", fs=disk)
    hand_over("/a", fs=disk)
    run_broker(disk, ["/a"], ConfigRecord(2, "t", "retention.ms", "5000"))
    with sparklog.open("/a", "rw", fs=disk) as log:
        log.create_topic("v", 3)
        log.delete_topic("u")
        log.alter_topic("t", partitions=3)
        ids = {name: info.id for name, info in log.topics().items()}
    started = 0
    for crash in every_crash(lambda fs: hand_over("/a", fs=fs), fs=disk):
        fs = crash.fs
        if starts(fs, ["/a"]):
            started += 1
            assert _is_told(fs, "/a", ids), crash.how
        hand_over("/a", fs=fs)
        cluster = read_cluster_metadata(fs, "/a")
        assert cluster is not None
        assert "u" not in cluster.topics
        assert len(cluster.topics["t"].partitions) == len(cluster.topics["v"].partitions) == 3
        assert cluster.topics["t"].config == {"retention.ms": "5000"}
        assert _is_told(fs, "/a", ids), crash.how
    assert started


def _cluster(fs: CrashFS | None, *directories: str) -> None:
    """A broker's log dirs, with a topic of its own."""
    given = {} if fs is None else {"fs": fs}
    with sparklog.open(directories[0], "rw", **given) as log:  # type: ignore[arg-type]
        log.create_topic("own")
    hand_over(directories[0], **given)  # type: ignore[arg-type]
    run_broker(fs or LOCAL, directories[:1])
    # It never was sparklog's: its ledger and the other files are gone.
    remove = fs or LOCAL
    for name in remove.listdir(directories[0]):
        place = os.path.join(directories[0], name)
        if name.startswith("sparklog."):
            remove.unlink(place)
        if name == "__sparklog_commits-0":
            for file in remove.listdir(place):
                remove.unlink(os.path.join(place, file))
            remove.rmdir(place)
    remove.sync_dir(directories[0])


def _deleted_there(kafka: Path, topic: str) -> None:
    """A client deletes a topic, and the broker its files."""
    run_broker(LOCAL, [str(kafka)], RemoveTopicRecord(known(LOCAL, str(kafka)).topics[topic].id))
    for each in kafka.glob(f"{topic}-*"):
        shutil.rmtree(each)


@pytest.mark.deep
def test_every_crash_of_a_handover_into_a_cluster() -> None:
    disk = CrashFS()
    for name in ("/log", "/kafka"):
        disk.mkdir(name)
    disk.sync_dir("/")
    ids = _make("/log", fs=disk)
    _cluster(disk, "/kafka")
    for crash in every_crash(lambda fs: hand_over_into("/log", "/kafka", fs=fs), fs=disk):
        fs = crash.fs
        assert starts(fs, ["/kafka"]), crash.how
        cluster = known(fs, "/kafka")
        assert "own" in cluster.topics
        for name in ("t", "u"):  # what the cluster knows is there, whole
            if name in cluster.topics:
                assert fs.size(f"/kafka/t-1/{0:020d}.log") == fs.size(f"/log/t-1/{0:020d}.log")
        with sparklog.open("/log", "rw", fs=fs) as log:
            assert log.offsets("t") == {0: (0, 0), 1: (1, 3)}, crash.how
        rest = ids.keys() - cluster.topics.keys()
        if rest:
            hand_over_into("/log", "/kafka", topics=rest, fs=fs)
        cluster = known(fs, "/kafka")
        assert {name: cluster.topics[name].id for name in ids} == ids, crash.how
        left = [n for n in fs.listdir("/kafka") if n.endswith("-delete")]
        assert not left, crash.how


def test_what_is_refused_into_a_cluster(tmp_path: Path) -> None:
    log, kafka = tmp_path / "log", tmp_path / "kafka"
    _make(log)
    _cluster(None, str(kafka))
    before = _tree(kafka)
    with pytest.raises(UnknownTopicError, match="nope"):
        hand_over_into(log, str(kafka), topics=["nope"])
    with pytest.raises(UnknownTopicError, match="__sparklog_commits"):
        hand_over_into(log, str(kafka), topics=["__sparklog_commits"])
    with pytest.raises(InvalidRequestError, match="a log of sparklog:"):
        _make(tmp_path / "other")
        hand_over_into(log, str(tmp_path / "other"))
    with pytest.raises(InvalidRequestError, match="contain each other: pass the log"):
        hand_over_into(log, str(log))
    with pytest.raises(InvalidRequestError, match="away does not exist: pass a broker's log dirs"):
        hand_over_into(log, str(tmp_path / "away"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequestError, match=r"is missing, or lacks node\.id"):
        hand_over_into(log, str(tmp_path / "empty"))
    (kafka / "t-0").mkdir()
    with pytest.raises(InvalidRequestError, match="t-0 exists: move it away"):
        hand_over_into(log, str(kafka))
    (kafka / "t-0").rmdir()
    (kafka / METADATA_DIR).rename(tmp_path / METADATA_DIR)
    advice = "no metadata log of.*: pass all of the broker's log.dirs, and its metadata.log.dir"
    with pytest.raises(InvalidRequestError, match=advice):
        hand_over_into(log, str(kafka))
    told = hand_over_into(log, str(kafka), metadata_log_dir=str(tmp_path), check=True)
    assert {topic.name for topic in told.topics} == {"t", "u"}
    (tmp_path / METADATA_DIR).rename(kafka / METADATA_DIR)
    after = {name: held for name, held in _tree(kafka).items() if name != ".lock"}
    assert after == {name: held for name, held in before.items() if name != ".lock"}
    with sparklog.open(log, "rw") as writer, pytest.raises(LogLockedError):
        writer.topics()
        hand_over_into(log, str(kafka))
    assert hand_over_into(log, str(kafka), topics=["u"], check=True).topics[0].name == "u"
    hand_over_into(log, str(kafka), topics=["u"])
    with pytest.raises(InvalidRequestError, match="delete it there, or leave it out here"):
        hand_over_into(log, str(kafka))
    hand_over_into(log, str(kafka), topics=["t"])
    assert {"t", "u"} <= known(LOCAL, str(kafka)).topics.keys()
    _deleted_there(kafka, "t")
    hand_over_into(log, str(kafka), topics=["t"])
    assert (kafka / f"t-1/{0:020d}.log").stat().st_size


def test_as_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "log")
    _make(path)
    assert run(["handover", path, "--check", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["check"], told["node_id"]) == (True, 1)
    assert is_kept_from_brokers(LOCAL, path)
    settings = str(tmp_path / "server.properties")
    assert run(["handover", path, "--node-id", "9", "--properties", settings]) == 0
    out = capsys.readouterr().out
    assert "node 9 of cluster" in out
    assert f"kafka-server-start.sh {settings}" in out
    assert "note: t: Kafka doesn't know segment.idle.ms=7" in out
    assert run(["handover", str(tmp_path / "none")]) == 2
    assert run(["handover", path, "--topic", "t"]) == 2
    assert run(["handover", path, "--into", "x", "--node-id", "3"]) == 2
    assert run(["handover", "s3://bucket/log"]) == 2
    assert "export --all" in capsys.readouterr().err
    kafka = str(tmp_path / "kafka")
    _cluster(None, kafka)
    assert run(["handover", path, "--into", kafka, "--topic", "t", "--check"]) == 0
    assert "would be copied" in capsys.readouterr().out
    assert run(["handover", path, "--into", kafka, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["copied_bytes"] > 0
    assert {"t", "u", "own"} <= known(LOCAL, kafka).topics.keys()


def test_an_unfinished_move_of_an_earlier_version_is_cancelled(tmp_path: Path) -> None:
    """A broker would continue the move, and believe what is in the copy."""
    one, two = str(tmp_path / "one"), tmp_path / "two"
    code = "import os, sparklog; sparklog.open({!r}, 'rw').create_topic('t'); os._exit(0)"
    path = f"{one},{two}"
    subprocess.run([sys.executable, "-c", code.format(path)], check=True)
    with sparklog.open(path) as log:
        mark = topic_id_bytes(log.topic("t").id).hex()
    copy = two / f"t-0.{mark}-future"
    copy.mkdir()
    hand_over(path)
    assert not copy.exists()
    assert starts(LOCAL, [one, str(two)])
