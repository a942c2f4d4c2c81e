"""A log becomes a directory on which a real broker starts; sparklog takes it back, and again."""

import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

import sparklog
from sparklog.errors import InvalidRequestError, LogLockedError
from sparklog.format.checkpoint_files import parse_epochs
from sparklog.fs import LOCAL
from sparklog.kafka import Endpoint
from sparklog.log.log import home_of
from sparklog.logdir.cluster_metadata import read_cluster_metadata
from sparklog.logdir.meta_properties import is_kept_from_brokers
from sparklog.service import Service, verify
from sparklog.tiered.restoring import restore
from sparklog.tools.handover.existing_cluster import hand_over_into
from sparklog.tools.handover.log_handover import hand_over
from sparklog.tools.moving.export_log import export_log
from sparklog.tools.moving.exporting import TopicRange
from sparklog.tools.moving.to_log_dir import move_to_log_dir
from sparklog.tools.moving.to_store import move_to_store
from tests import jars
from tests.depth import DEPTH
from tests.kafka.broker import JarEngine
from tests.kafka.broker import broker as run_broker
from tests.kafka.handovers import described, served, strays, tool, topic_ids
from tests.log.forks import fork
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _needs_jars():
    with jars.or_skip("broker"):
        jars.kafka_jars(), jars.java()


def _values(first, end):
    return pa.table({"value": [b"value %d" % n for n in range(first, end)]})


def _read(log, topic, partition=0):
    return log.read(topic, [partition]).read_all()["value"].to_pylist()


def _produce(broker, topic, *values, partition=0):
    failed = []
    producer = broker.producer(acks="all", enable_idempotence=True)
    for value in values:
        producer.produce(
            topic, value, partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(240) == 0
    return failed


def _alter(broker, topic, **config):
    kinds = {None: AlterConfigOpType.DELETE}
    entries = [
        ConfigEntry(
            name.replace("_", "."), value,
            incremental_operation=kinds.get(value, AlterConfigOpType.SET),
        )
        for name, value in config.items()
    ]  # fmt: skip
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = broker.admin()  # its futures die with it
    admin.incremental_alter_configs([resource])[resource].result(240)


def _delete(broker, topic):
    admin = broker.admin()
    admin.delete_topics([topic])[topic].result(240)


FLIGHTS = {"retention.ms": "-1", "segment.idle.ms": "5000"}
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


RETENTION = {"retention.ms": "604800000"}  # the default, and set: a broker says so, too


def _fill(path):
    """Three topics in two log dirs, a group, a topic that went; return the topics' ids."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("flights", 2, config=FLIGHTS)
        log.create_topic("a.b", 3, config={"compression.type": "lz4", "retention.ms": 604800000})
        log.create_topic("going", 1)
        log.create_topic("gone", 1)
        for n in range(3):
            log.append("flights", _values(n * 100, n * 100 + 100), partition=0)
        log.append("flights", _values(0, 7), partition=1)
        log.append("a.b", _values(0, 10), partition=2)
        log.delete_records("flights", {0: 100})
        log.commit_offsets("audit", {"flights": {0: 150, 1: 3}, "a.b": {2: 10}})
        log.delete_topic("gone")
        places = [each for info in log.topics().values() for each in info.dirs.values()]
        assert len({Path(place).parent for place in places}) == 2
        return {name: info.id for name, info in log.topics().items()}


def _check_served(broker, ids):
    """All is as it was here."""
    found = topic_ids(broker)
    assert {name: found[name] for name in ids} == ids
    assert found.keys() == {*ids, "__sparklog_commits"}
    assert broker.offsets("flights", 0) == (100, 300)
    assert broker.offsets("flights", 1) == (0, 7)
    assert broker.offsets("a.b", 2) == (0, 10)
    seen = broker.consume("flights", 0)
    assert [(r.offset, r.value) for r in seen] == [(n, b"value %d" % n) for n in range(100, 300)]
    assert described(broker, "flights") == {"retention.ms": "-1"}
    assert described(broker, "a.b") == {"compression.type": "lz4", **RETENTION}
    # The ledger is one that clients read, and can't write to.
    kinds = [r.value.split(b'"kind":"')[1].split(b'"')[0] for r in _ledger(broker)]
    assert kinds[:3] == [b"snapshot", b"topic", b"topic"]
    assert [e.name() for e in _produce(broker, "__sparklog_commits", b"x")] == [
        "MSG_SIZE_TOO_LARGE"
    ]


def _check_groups(broker, done):
    """Groups go on by Kafka's own tool."""
    command = shlex.split(done.groups_command)
    assert command[0] == "kafka-consumer-groups.sh"
    tool(GROUPS, broker, *command[3:])
    lag = tool(GROUPS, broker, "--describe", "--group", "audit")
    rows = {tuple(row[1:4]) for line in lag.splitlines() if (row := line.split())}
    assert {("flights", "0", "150"), ("flights", "1", "3"), ("a.b", "2", "10")} <= rows


def _change(broker, dirs):
    """Do what clients do: append, make, alter, extend and delete topics."""
    assert _produce(broker, "flights", b"more", b"and more") == []
    admin = broker.admin()
    made = NewTopic("fresh", 2, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([made])["fresh"].result(240)
    _delete(broker, "going")
    _alter(broker, "a.b", compression_type=None, max_message_bytes="5000")
    admin.create_partitions([NewPartitions("flights", 3)])["flights"].result(240)
    for name in ("flights-2", "fresh-0", "fresh-1"):
        until(lambda name=name: any((path / name).is_dir() for path in dirs))


def _check_taken_back(log, ids):
    assert log.offsets("flights") == {0: (100, 302), 1: (0, 7), 2: (0, 0)}
    assert _read(log, "flights")[-2:] == [b"more", b"and more"]
    topics = log.topics()
    assert topics.keys() == {"a.b", "flights", "fresh", "__consumer_offsets"}
    for name in ("a.b", "flights"):
        assert topics[name].id == ids[name]
    assert topics["a.b"].config.to_dict() == {"max.message.bytes": "5000", **RETENTION}
    assert topics["flights"].config.to_dict() == FLIGHTS
    fresh = topics["fresh"].config.to_dict()
    assert fresh == {"cleanup.policy": "compact", "retention.ms": "-1"}


@pytest.mark.deep
def test_there_and_back_and_there_again(tmp_path):
    """Two log dirs; ids, configs, offsets, epochs, groups; what clients change; a kill -9."""
    dirs = [tmp_path / "a", tmp_path / "b"]
    path = f"{dirs[0]},{dirs[1]}"
    ids = _fill(path)
    with served(path, tmp_path, groups_file=str(tmp_path / "groups.csv")) as (broker, done):
        assert [strays(each) for each in dirs] == [[], []]
        assert [note for note in done.notes if "segment.idle.ms" in note]
        _check_served(broker, ids)
        _check_groups(broker, done)
        _change(broker, dirs)
        with pytest.raises(LogLockedError, match="broker"):
            sparklog.open(path, "rw")
        broker.stop()

    with sparklog.open(path, "rw") as log:
        _check_taken_back(log, ids)
        log.append("flights", _values(0, 5), partition=2)
        log.append("flights", _values(0, 1), partition=0)
        log.create_topic("later", 1)
        log.append("later", _values(0, 3))
        log.delete_topic("fresh")  # its directories wait as a broker's own, which deletes them
        assert any(name.endswith("-delete") for each in dirs for name in os.listdir(each))
        here = Path(log.topic("flights").dirs[0]).parent
        log.move_partition("flights", 0, str(dirs[1] if here == dirs[0] else dirs[0]))
        log.alter_topic("a.b", partitions=4)

    with served(path, tmp_path) as (broker, done):
        assert not done.is_new_cluster
        assert [strays(each) for each in dirs] == [[], []]
        left = {"a.b", "flights", "later", "__consumer_offsets", "__sparklog_commits"}
        assert topic_ids(broker).keys() == left
        assert broker.offsets("flights", 0) == (100, 303)
        assert broker.offsets("flights", 2) == (0, 5)
        assert broker.offsets("later") == (0, 3)
        assert broker.offsets("a.b", 3) == (0, 0)
        assert described(broker, "a.b") == {"max.message.bytes": "5000", **RETENTION}
        assert _produce(broker, "later", b"fourth") == []
        assert _produce(broker, "flights", b"last") == []
        broker.kill()

    with sparklog.open(path, "rw") as log:
        assert _read(log, "later")[3:] == [b"fourth"]
        assert log.offsets("flights")[0] == (100, 304)
        log.append("later", _values(4, 5))
    assert verify(path).ok
    with served(path, tmp_path) as (broker, _):
        assert [r.value for r in broker.consume("later")][3:] == [b"fourth", b"value 4"]
        assert [strays(each) for each in dirs] == [[], []]


@pytest.mark.deep
def test_leader_epochs_go_on_where_they_are(tmp_path):
    """Those of a log that was restored are high; the broker's are higher, and none is lost."""
    with sparklog.open(tmp_path / "was", "rw") as log:
        log.create_topic("t")
        log.append("t", _values(0, 5))
    path = tmp_path / "log"
    shutil.copytree(tmp_path / "was", path)
    with sparklog.open(path, "rw") as log:  # begins a history
        log.append("t", _values(5, 8))
    before = parse_epochs((path / "t-0" / "leader-epoch-checkpoint").read_bytes(), path="t")
    assert [start for _, start in before] == [0, 5]
    assert before[1][0] > 65_536
    with Endpoint(sparklog.open(path)) as endpoint:
        ours = AdminClient({"bootstrap.servers": endpoint.bootstrap_servers})
        cluster = ours.list_topics(timeout=240).cluster_id
    with served(path, tmp_path) as (broker, done):
        assert broker.admin().list_topics(timeout=240).cluster_id == cluster == done.cluster_id
        assert _produce(broker, "t", b"more") == []
        assert len(broker.consume("t")) == 9
        broker.stop()
    after = parse_epochs((path / "t-0" / "leader-epoch-checkpoint").read_bytes(), path="t")
    assert after[:2] == before
    assert all(epoch > before[1][0] and start == 8 for epoch, start in after[2:])
    with sparklog.open(path, "rw") as log:
        log.append("t", _values(9, 10))
    again = parse_epochs((path / "t-0" / "leader-epoch-checkpoint").read_bytes(), path="t")
    assert again[: len(after)] == after
    assert again[-1][1] == 9


def _ledger(broker):
    return broker.consume("__sparklog_commits")


def _tree(path):
    return {
        str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else ""
        for p in path.rglob("*")
        if p.name != ".lock"
    }


def _refused(home, log_dir):
    """Start a broker on a log dir, in the way that its operator would; return what it printed."""
    config = home / "mine.properties"
    port = free_port()
    config.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://localhost:{free_port()},CONTROLLER://localhost:{port}\n"
        f"controller.quorum.voters=1@localhost:{port}\nlog.dirs={log_dir}\n"
    )
    engine = JarEngine(home, log_dir, 0, config=config)
    format_it = ["--cluster-id=MkU3OEVBNTcwNTJENDM2Qg", f"--config={config}"]
    command = engine._command("kafka.tools.StorageTool", "format", *format_it)
    formatted = subprocess.run(command, capture_output=True, text=True, timeout=240)
    engine.start()
    process = engine._process
    try:
        code = process.wait(240)
    finally:
        process.kill()
    assert code == 1, engine.log()[-2000:]
    return formatted.returncode, formatted.stdout + formatted.stderr, engine.log()


@pytest.mark.parametrize("state", [pytest.param("closed", marks=pytest.mark.deep), "crashed"])
@pytest.mark.deep
def test_no_broker_starts_on_a_log_that_was_not_handed_over(tmp_path, state):
    """And nothing is changed there: neither by kafka-storage format nor by the broker."""
    path = tmp_path / "log"
    log = sparklog.open(path, "rw")
    log.create_topic("t", 2)
    log.append("t", _values(0, 3))
    if state == "closed":
        log.close()
    else:
        home_of(log).commits.release()  # as a crash does
    before = _tree(path)
    code, formatted, printed = _refused(tmp_path, path)
    assert code != 0
    assert "run `sparklog handover` on it first" in formatted
    assert "run `sparklog handover` on it first" in printed
    assert _tree(path) == before
    with sparklog.open(path, "rw") as log:
        assert log.offsets("t")


@pytest.mark.deep
def test_a_brokers_further_log_dir_that_is_sparklogs_is_left_alone(tmp_path):
    """To the broker it is a disk that failed; all others are served."""
    ours = tmp_path / "ours"
    for path in (tmp_path / "log", ours):
        with sparklog.open(path, "rw") as log:
            log.create_topic(path.name)
            log.append(path.name, _values(0, 3))
    before = _tree(ours)
    with served(tmp_path / "log", tmp_path, beside=str(ours)) as (broker, _):
        assert len(broker.consume("log")) == 3
        assert "ours" not in topic_ids(broker)
        broker.stop()
    assert _tree(ours) == before


@pytest.mark.deep
def test_the_guard_alone_keeps_a_broker_from_half_a_commit(tmp_path):
    """Whoever forces the formatting on a log that a crash left open still gets no broker."""
    path = tmp_path / "log"
    log = sparklog.open(path, "rw")
    log.create_topic("t")
    log.append("t", _values(0, 3))
    home_of(log).commits.release()
    (path / "meta.properties").unlink()
    code, _, printed = _refused(tmp_path, path)
    assert code == 0
    assert "sparklog_open" in printed
    assert strays(path) == []
    # What that left there, a metadata log without topics, is no obstacle either.
    assert (path / "__cluster_metadata-0").is_dir()
    with served(path, tmp_path) as (broker, done):
        assert not done.is_new_cluster
        assert done.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"
        assert [r.value for r in broker.consume("t")] == [b"value 0", b"value 1", b"value 2"]


@pytest.mark.deep
def test_what_the_metadata_log_says_is_what_the_broker_says(tmp_path):
    """Our reading of it, snapshots too, against the broker's own answers."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2)
    with served(tmp_path / "log", tmp_path) as (broker, _):
        for n in range(5):
            broker.create_topic(f"u{n}", 1 + n, segment_ms=1000 + n)
        _alter(broker, "u1", segment_ms="77", retention_ms=None)
        _delete(broker, "u0")
        ids = topic_ids(broker)
        configs = {name: described(broker, name) for name in ids}
        partitions = {name: len(t.partitions) for name, t in
                      broker.admin().list_topics(timeout=240).topics.items()}  # fmt: skip
        broker.stop()
    known = read_cluster_metadata(LOCAL, str(tmp_path / "log"))
    assert known is not None
    assert known.nodes == {1}
    assert {name: topic.id for name, topic in known.topics.items()} == ids
    assert {name: topic.config for name, topic in known.topics.items()} == configs
    assert {name: len(topic.partitions) for name, topic in known.topics.items()} == partitions


def _leave_half_copies(source, log_dir):
    """What calls that were broken off leave, under names by which a broker deletes them."""
    for number, size in enumerate((None, 0, 1, 13, 100, 1000)):
        half = log_dir / f"other-0.{number:032x}-delete"
        half.mkdir()
        for file in sorted(source.glob("0*")) if size is not None else ():
            (half / file.name).write_bytes(file.read_bytes()[:size])
            if not size:
                break


@pytest.mark.deep
@pytest.mark.parametrize("kill", [False, True] if DEPTH == "all" else [True])
def test_into_a_cluster_that_has_topics_of_its_own(tmp_path, kill):
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("flights", 2, config=FLIGHTS)
        log.create_topic("not.this", 1)
        log.append("flights", _values(0, 300), partition=0)
        log.append("flights", _values(0, 7), partition=1)
        log.delete_records("flights", {0: 100})
        ids = {name: info.id for name, info in log.topics().items()}
    with run_broker(tmp_path / "broker") as broker:
        broker.create_topic("orders", 2, segment_ms=7777)
        assert _produce(broker, "orders", *(b"order %d" % n for n in range(50))) == []
        own, own_ids = described(broker, "orders"), topic_ids(broker)
        with pytest.raises(LogLockedError, match="broker"):
            hand_over_into(path, str(broker.log_dir))
        (broker.kill if kill else broker.stop)()
        before = _tree(broker.log_dir)
        told = hand_over_into(path, str(broker.log_dir), topics=["flights"], check=True)
        assert _tree(broker.log_dir) == before
        done = hand_over_into(path, str(broker.log_dir), topics=["flights"])
        assert (done.topics, done.copied_bytes) == (told.topics, told.copied_bytes)
        broker.start()
        assert strays(broker.log_dir) == []
        assert topic_ids(broker) == {**own_ids, "flights": ids["flights"]}
        assert described(broker, "orders") == own
        assert described(broker, "flights") == {"retention.ms": "-1"}
        assert len(broker.consume("orders")) == 50
        assert broker.offsets("flights", 0) == (100, 300)
        assert len(broker.consume("flights", 1)) == 7
        assert _produce(broker, "flights", b"more") == []
        assert broker.consume("flights")[-1].offset == 300
        broker.stop()
        with pytest.raises(InvalidRequestError, match="has a topic flights"):
            hand_over_into(path, str(broker.log_dir))
        done = hand_over_into(path, str(broker.log_dir), topics=["not.this"])
        _leave_half_copies(path / "flights-0", broker.log_dir)
        broker.start()
        assert len(broker.consume("orders")) == 50
        assert broker.offsets("not.this") == (0, 0)
    with sparklog.open(path, "rw") as log:  # stays as it was
        assert log.offsets("flights")[0] == (100, 300)


TIERED = {
    "remote.storage.enable": True, "retention.ms": -1, "local.retention.bytes": 1,
    "internal.segment.bytes": 400, "file.delete.delay.ms": 0,
}  # fmt: skip


def _tier(path, store):
    """Topic t, whose first segments are in remote storage alone."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 1, config=TIERED)
        for n in range(6):
            log.append("t", _values(n * 10, n * 10 + 10))
    for _ in range(3):  # one copies, one announces, one deletes
        Service(str(path), remote=store).run_once()


@pytest.mark.deep
def test_what_was_restored_and_exported_is_handed_over_as_well(tmp_path):
    """From a tier, from a log in a store and of one topic, to a log dir; a fork."""
    _tier(tmp_path / "log", f"file://{tmp_path}/tier")
    restore(f"file://{tmp_path}/tier", tmp_path / "restored")
    with sparklog.open(tmp_path / "log") as log:
        export_log(TopicRange(log, "t"), tmp_path / "exported")
    move_to_store(tmp_path / "log", f"file://{tmp_path}/store")
    move_to_log_dir(f"file://{tmp_path}/store", tmp_path / "moved")
    with sparklog.open(tmp_path / "moved", "rw") as log:
        log.append("t", _values(60, 61))
    with sparklog.open(tmp_path / "moved") as log:
        whole = {p: end for p, (_, end) in log.offsets("t").items()}
    fork(tmp_path / "moved", tmp_path / "forked", offsets={"t": whole})
    counts = {"restored": None, "exported": 60, "moved": 61, "forked": 61}
    for name, count in counts.items():
        path = tmp_path / name
        assert is_kept_from_brokers(LOCAL, str(path)), name
        with sparklog.open(path) as log:
            held = _read(log, "t")
            span = log.offsets("t")[0]
            assert count in (None, len(held)), name
        with served(path, tmp_path) as (broker, _):
            assert strays(path) == [], name
            assert broker.offsets("t") == span
            assert [r.value for r in broker.consume("t")] == held
            assert _produce(broker, "t", b"more") == []
            broker.stop()


@pytest.mark.deep
def test_what_is_only_in_remote_storage_is_back_when_the_log_is(tmp_path):
    """A stock broker begins with what is on disk; nothing else is given up."""
    path, store = tmp_path / "log", f"file://{tmp_path}/tier"
    _tier(path, store)
    with sparklog.open(path) as log:
        assert log.offsets("t")[0] == (0, 60)
    with served(path, tmp_path) as (broker, done):
        (topic,) = (topic for topic in done.topics if topic.name == "t")
        start = topic.partitions[0].start
        assert 0 < start < 60
        assert any(f"offsets 0 to {start - 1} are only in remote" in note for note in done.notes)
        assert broker.offsets("t") == (start, 60)
        assert len(broker.consume("t")) == 60 - start
        assert "remote.storage.enable" not in described(broker, "t")
        assert _produce(broker, "t", b"more") == []
        broker.stop()
    with sparklog.open(path, "rw") as log:
        assert log.offsets("t")[0] == (0, 61)
        assert _read(log, "t") == [b"value %d" % n for n in range(60)] + [b"more"]
        assert log.topic("t").config.remote_storage_enable
        assert log.topic("t").config.local_retention_bytes == 1
    Service(str(path), remote=store).run_once()
    with sparklog.open(path) as log:
        assert len(_read(log, "t")) == 61


@pytest.mark.deep
def test_a_brokers_own_directory_that_sparklog_wrote_to(tmp_path):
    """It starts again with its own settings, its groups, its transactions, and what came here."""
    with run_broker(tmp_path / "broker") as broker:
        broker.create_topic("orders", 2, segment_ms=7777)
        broker.create_topic("keyed", 1, cleanup_policy="compact")
        assert _produce(broker, "orders", b"a", b"b", b"c") == []
        producer = broker.producer(transactional_id="t1", acks="all")
        producer.init_transactions(240)
        producer.begin_transaction()
        producer.produce("orders", b"in a transaction", partition=1)
        producer.commit_transaction(240)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 2)], asynchronous=False)
        consumer.close()
        ids = topic_ids(broker)
        broker.stop()
        path = broker.log_dir
        with sparklog.open(path, "rw") as log:
            assert log.topic("orders").config.to_dict() == {
                "segment.ms": "7777", "retention.ms": "-1"
            }  # fmt: skip
            assert log.topic("keyed").config.compact
            log.append("orders", _values(0, 1), partition=0)
            log.create_topic("ours")
        with pytest.raises(RuntimeError, match="no broker"):
            _start_soon(broker)
        assert strays(path) == []
        done = hand_over(path)
        assert not done.is_new_cluster
        broker.start()
        assert strays(path) == []
        found = topic_ids(broker)
        assert {name: found[name] for name in ids} == ids
        assert found.keys() - ids.keys() == {"ours", "__sparklog_commits"}
        assert [r.value for r in broker.consume("orders")] == [b"a", b"b", b"c", b"value 0"]
        committed = broker.consume("orders", 1, isolation="read_committed")
        assert [r.value for r in committed] == [b"in a transaction"]
        again = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        (at,) = again.committed([TopicPartition("orders", 0)], timeout=240)
        assert at.offset == 2
        again.close()
        assert described(broker, "orders")["segment.ms"] == "7777"
        assert _produce(broker, "ours", b"x") == []


def _start_soon(broker):
    """Start it; a RuntimeError where it ends by itself."""
    broker.engine.start()
    code = broker.engine._process.wait(240)
    raise RuntimeError(f"no broker: exit code {code}")


@pytest.mark.deep
def test_partitions_that_nobody_knows(tmp_path):
    """Files alone: without topic ids, a ledger or meta.properties, and one name too many."""
    with sparklog.open(tmp_path / "was", "rw") as log:
        log.create_topic("t")
        log.append("t", _values(0, 5))
    path = tmp_path / "log"
    path.mkdir()
    for name in ("a.b-0", "a_b-0"):
        shutil.copytree(tmp_path / "was" / "t-0", path / name)
        (path / name / "partition.metadata").unlink()
    told = hand_over(path, check=True)
    assert any("no topic id yet" in note for note in told.notes)
    with served(path, tmp_path) as (broker, done):
        assert any("same name in the broker's metrics" in note for note in done.notes)
        ids = topic_ids(broker)
        assert ids.keys() == {"a.b", "a_b", "__sparklog_commits"}
        assert len(set(ids.values())) == 3
        for name in ("a.b", "a_b"):
            assert len(broker.consume(name)) == 5
            assert described(broker, name) == {"retention.ms": "-1"}
