"""Metadata records: bytes that Kafka 4.1's own tool wrote, every kind there and back, damage."""

import pytest

from sparklog.format.checkpoint_files import topic_id_text
from sparklog.format.metadata_records import (
    ApiKey,
    ConfigRecord,
    FeatureLevelRecord,
    NodeRecord,
    OtherRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata,
    encode_metadata,
)

ID = topic_id_text(bytes(range(16)))
OTHER = topic_id_text(bytes(range(16, 32)))
FORMATTED = {  # values in the bootstrap.checkpoint of `kafka-storage format`, Kafka 4.1.0
    "010c00116d657461646174612e76657273696f6e001b00": FeatureLevelRecord("metadata.version", 27),
    "010c000e67726f75702e76657273696f6e000100": FeatureLevelRecord("group.version", 1),
    "010c00147472616e73616374696f6e2e76657273696f6e000200": FeatureLevelRecord(
        "transaction.version", 2
    ),
}
PARTITION = PartitionRecord(
    partition=3, topic_id=ID, replicas=(1,), isr=(1,), leader=1, leader_epoch=70_000,
    partition_epoch=5, directories=(OTHER,),
)  # fmt: skip
RECORDS = [
    FeatureLevelRecord("metadata.version", 27),
    TopicRecord("flights", ID),
    TopicRecord("t" * 249, ID),
    RemoveTopicRecord(ID),
    ConfigRecord(2, "flights", "retention.ms", "-1"),
    ConfigRecord(2, "flights", "retention.ms", None),
    ConfigRecord(4, "", "min.insync.replicas", "1"),
    ProducerIdsRecord(1, -1, 2000),
    PARTITION,
]


@pytest.mark.parametrize(("value", "record"), FORMATTED.items())
def test_is_what_kafka_writes(value, record):
    assert decode_metadata(bytes.fromhex(value)) == record
    assert encode_metadata(record).hex() == value


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_there_and_back(record):
    assert decode_metadata(encode_metadata(record)) == record


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_a_cut_value_is_an_error(record):
    whole = encode_metadata(record)
    for end in range(len(whole) - 1):  # the last byte says that no tagged field follows
        with pytest.raises(ValueError, match="bytes"):
            decode_metadata(whole[:end])


def test_a_partition_of_version_0_names_no_directories():
    value = bytearray(encode_metadata(PARTITION))
    assert value[2] == 1
    value[2] = 0
    del value[-18:-1]  # the array of one id
    found = decode_metadata(bytes(value))
    assert found == PartitionRecord(
        partition=3, topic_id=ID, replicas=(1,), isr=(1,), leader=1, leader_epoch=70_000,
        partition_epoch=5,
    )  # fmt: skip


def _change(tags: str) -> PartitionChangeRecord:
    found = decode_metadata(bytes.fromhex("010502" + "00000003" + bytes(range(16)).hex() + tags))
    assert isinstance(found, PartitionChangeRecord)
    return found


def test_a_change_of_a_partition_says_what_changed():
    assert _change("00") == PartitionChangeRecord(partition=3, topic_id=ID)
    # Tag 0 (isr) is passed over; 1: leader -1; 8: one directory.
    isr, leader = "00" + "05" + "0200000001", "01" + "04" + "ffffffff"
    moved = "08" + "11" + "02" + bytes(range(16, 32)).hex()
    found = _change("03" + isr + leader + moved)
    assert (found.leader, found.directories, found.replicas) == (-1, (OTHER,), None)
    same = _change("01" + "01" + "04" + "fffffffe")
    assert same.leader is None  # -2: it stayed
    assert _change("01" + "02" + "09" + "03" + "0000000100000002").replicas == (1, 2)


def test_what_is_not_known_stays_as_it_is():
    raw = bytes.fromhex("010b00aabbcc00")  # a SCRAM credential, say
    found = decode_metadata(raw)
    assert found == OtherRecord(11, raw)
    assert encode_metadata(found) == raw


def test_nodes_that_register_and_leave():
    assert decode_metadata(bytes.fromhex("010003000000070a")) == NodeRecord(
        ApiKey.REGISTER_BROKER, 7
    )
    assert decode_metadata(bytes.fromhex("01010000000007000000000000000100")) == NodeRecord(
        ApiKey.UNREGISTER_BROKER, 7
    )
    with pytest.raises(ValueError, match="can be read, but not written"):
        encode_metadata(NodeRecord(ApiKey.REGISTER_BROKER, 7))


def test_another_frame_version_is_refused():
    with pytest.raises(ValueError, match="frame version 2"):
        decode_metadata(b"\x02\x0c\x00")
