"""A cluster's metadata log is read as its controller replays it."""

import pytest

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.format.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    OtherRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sparklog.fs import LOCAL
from sparklog.logdir.cluster_metadata import METADATA_DIR, read_bootstrap, read_cluster_metadata
from sparklog.tools.handover.bootstrap_checkpoint import (
    append_to_metadata_log,
    bootstrap_bytes,
    encode_batches,
    write_bootstrap,
)

ID, OTHER, DIR = (topic_id_text(bytes([n]) * 16) for n in (1, 2, 3))
BEGIN = OtherRecord(23, bytes.fromhex("01170000"))
END = OtherRecord(24, bytes.fromhex("01180000"))
ABORT = OtherRecord(25, bytes.fromhex("01190000"))
FEATURE = FeatureLevelRecord("metadata.version", 27)


def _partition(number=0, topic_id=ID, leader_epoch=4):
    return PartitionRecord(
        partition=number, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1,
        leader_epoch=leader_epoch, partition_epoch=0, directories=(DIR,),
    )  # fmt: skip


def _log(tmp_path, *batches, base=0, epoch=3):
    """Write a segment, a batch from each list of records."""
    directory = tmp_path / METADATA_DIR
    directory.mkdir(exist_ok=True)
    raw, at = b"", base
    for records in batches:
        raw += bytes(encode_batches(records, base_offset=at, epoch=epoch, time_ms=1))
        at += len(records)
    (directory / f"{base:020d}.log").write_bytes(raw)
    return directory


def _read(tmp_path):
    found = read_cluster_metadata(LOCAL, str(tmp_path))
    assert found is not None
    return found


def test_there_is_none(tmp_path):
    assert read_cluster_metadata(LOCAL, str(tmp_path)) is None
    assert read_bootstrap(LOCAL, str(tmp_path)) is None
    (tmp_path / METADATA_DIR).mkdir()
    assert not _read(tmp_path).has_controller_records


def test_topics_configs_and_partitions(tmp_path):
    change = OtherRecord(  # of leader to -1, as a controlled shutdown does
        5, bytes.fromhex("010502" "00000001") + bytes([1]) * 16 + bytes.fromhex("010104ffffffff")
    )  # fmt: skip
    _log(
        tmp_path,
        [FEATURE, ConfigRecord(2, "t", "retention.ms", "5"), TopicRecord("t", ID)],
        [_partition(0), _partition(1), change, ProducerIdsRecord(1, 9, 3000)],
        [ConfigRecord(2, "t", "a", "1"), ConfigRecord(2, "t", "a", None)],
        [ConfigRecord(4, "", "min.insync.replicas", "1")],
    )
    found = _read(tmp_path)
    assert found.has_controller_records
    topic = found.topics["t"]
    assert (topic.id, topic.config) == (ID, {"retention.ms": "5"})
    epochs = {p: (each.leader_epoch, each.partition_epoch) for p, each in topic.partitions.items()}
    assert epochs == {0: (4, 0), 1: (5, 1)}
    assert topic.partitions[0].directories == (DIR,)
    assert (found.next_producer_id, found.end, found.epoch) == (3000, 10, 3)
    assert found.others == [ConfigRecord(4, "", "min.insync.replicas", "1")]


def test_a_topic_that_went_and_came_again_has_none_of_its_configs(tmp_path):
    gone = [FEATURE, TopicRecord("t", ID), ConfigRecord(2, "t", "a", "1"), _partition()]
    _log(tmp_path, gone, [RemoveTopicRecord(ID), TopicRecord("t", OTHER)])
    topic = _read(tmp_path).topics["t"]
    assert (topic.id, topic.config, topic.partitions) == (OTHER, {}, {})


def test_only_what_a_transaction_committed(tmp_path):
    _log(
        tmp_path,
        [FEATURE, BEGIN, TopicRecord("aborted", ID), ABORT],
        [BEGIN, TopicRecord("done", ID)],
        [_partition(), END, BEGIN, TopicRecord("open", OTHER)],
    )
    assert _read(tmp_path).topics.keys() == {"done"}


def test_a_transaction_over_two_segments(tmp_path):
    _log(tmp_path, [FEATURE, BEGIN, TopicRecord("t", ID)])
    _log(tmp_path, [_partition(), END], base=3)
    assert _read(tmp_path).topics["t"].partitions.keys() == {0}


def test_an_unfinished_bootstrap_is_none(tmp_path):
    _log(tmp_path, [BEGIN, FEATURE, TopicRecord("t", ID)])
    assert not _read(tmp_path).has_controller_records


def test_the_newest_snapshot_and_what_came_after_it(tmp_path):
    directory = _log(tmp_path, [FEATURE, TopicRecord("older", ID)])
    snapshot = [FEATURE, TopicRecord("kept", OTHER)]
    older = bootstrap_bytes([FEATURE], time_ms=1)
    (directory / "00000000000000000001-0000000003.checkpoint").write_bytes(older)
    raw = bootstrap_bytes(snapshot, time_ms=1)
    (directory / "00000000000000000003-0000000003.checkpoint").write_bytes(raw)
    (directory / "00000000000000000009-0000000003.checkpoint.part").write_bytes(b"torn")
    # A batch that reaches over the snapshot's end: its first record is in the snapshot.
    _log(tmp_path, [RemoveTopicRecord(ID), TopicRecord("new", ID)], base=2)
    found = _read(tmp_path)
    assert found.topics.keys() == {"kept", "new"}
    assert (found.end, found.epoch) == (4, 3)


def test_a_snapshot_without_a_record_behind_it(tmp_path):
    directory = _log(tmp_path, base=7)
    raw = bootstrap_bytes([FEATURE, TopicRecord("t", ID)], time_ms=1)
    (directory / "00000000000000000007-0000000012.checkpoint").write_bytes(raw)
    found = _read(tmp_path)
    assert (found.end, found.epoch, found.position) == (7, 12, 0)
    append_to_metadata_log(LOCAL, found, [TopicRecord("u", OTHER)], time_ms=2)
    after = _read(tmp_path)
    assert (after.topics.keys(), after.end, after.epoch) == ({"t", "u"}, 8, 12)


@pytest.mark.parametrize("cut", [1, 30, 61, 80])
def test_a_torn_end_is_written_over(tmp_path, cut):
    directory = _log(tmp_path, [FEATURE], [TopicRecord("t", ID)])
    (segment,) = directory.glob("*.log")
    raw = segment.read_bytes()
    segment.write_bytes(raw[:-cut])
    found = _read(tmp_path)
    assert (found.topics, found.end) == ({}, 1)
    append_to_metadata_log(LOCAL, found, [TopicRecord("u", OTHER)], time_ms=2)
    assert _read(tmp_path).topics.keys() == {"u"}


def test_appended_records_are_of_the_last_leaders_epoch(tmp_path):
    _log(tmp_path, [FEATURE], epoch=11)
    many = [TopicRecord(f"t{n}", topic_id_text(n.to_bytes(16))) for n in range(1, 30_001)]
    append_to_metadata_log(LOCAL, _read(tmp_path), many, time_ms=2)
    found = _read(tmp_path)
    assert (len(found.topics), found.end, found.epoch) == (30_000, 30_001, 11)


def test_a_damaged_snapshot_is_an_error(tmp_path):
    directory = _log(tmp_path, [FEATURE])
    raw = bytearray(bootstrap_bytes([FEATURE, TopicRecord("t", ID)], time_ms=1))
    for bad in (raw[:-5], raw[:120] + bytes([raw[120] ^ 1]) + raw[121:]):
        (directory / "00000000000000000001-0000000003.checkpoint").write_bytes(bad)
        with pytest.raises(DataCorruptionError, match="checkpoint"):
            read_cluster_metadata(LOCAL, str(tmp_path))


def test_records_that_contradict_one_another_are_an_error(tmp_path):
    _log(tmp_path, [FEATURE, _partition()])
    with pytest.raises(DataCorruptionError, match="which is unknown"):
        read_cluster_metadata(LOCAL, str(tmp_path))
    _log(tmp_path, [FEATURE, OtherRecord(2, b"\x01\x02\x00")])
    with pytest.raises(DataCorruptionError, match="a record can't be decoded"):
        read_cluster_metadata(LOCAL, str(tmp_path))


def test_a_bootstrap_file_there_and_back(tmp_path):
    scram = OtherRecord(11, b"\x01\x0b\x00\x00")
    write_bootstrap(LOCAL, str(tmp_path), [FEATURE, scram, TopicRecord("t", ID)], time_ms=1)
    found = read_bootstrap(LOCAL, str(tmp_path))
    assert found is not None
    assert (found.features, found.others) == ({"metadata.version": 27}, [scram])
    assert found.topics.keys() == {"t"}
