"""Kafka's small text files."""

import pytest

from sparklog.errors import DataCorruptionError
from sparklog.format import checkpoint_files


def test_offsets():
    raw = b"0\n2\na-b 0 17\nt 3 0\n"
    offsets = checkpoint_files.parse_offsets(raw, "f")
    assert offsets == {("a-b", 0): 17, ("t", 3): 0}
    assert checkpoint_files.format_offsets(offsets) == raw
    assert checkpoint_files.parse_offsets(b"", "f") == {}
    assert checkpoint_files.format_offsets({}) == b"0\n0\n"


def test_epochs():
    assert checkpoint_files.parse_epochs(b"0\n2\n0 0\n4 17\n", "f") == [(0, 0), (4, 17)]
    assert checkpoint_files.format_epochs([(0, 0), (4, 17)]) == b"0\n2\n0 0\n4 17\n"


@pytest.mark.parametrize(
    "raw",
    [b"1\n0\n", b"0\n", b"0\n2\nt 0 1\n", b"0\n0\nt 0 1\n", b"0\n1\nt 0\n", b"0\n1\nt 0 x\n",
     b"\xff", b"x", b"0\n1\nt 0 99999999999999999999\n", b"0\nx\n"],
)  # fmt: skip
def test_damaged_offsets(raw):
    with pytest.raises(DataCorruptionError, match="f: "):
        checkpoint_files.parse_offsets(raw, "f")


@pytest.mark.parametrize("raw", [b"0\n2\n4 0\n0 17\n", b"0\n2\n0 5\n1 4\n", b"0\n1\n0\n"])
def test_damaged_epochs(raw):
    with pytest.raises(DataCorruptionError, match="f: "):
        checkpoint_files.parse_epochs(raw, "f")


def test_partition_metadata_has_no_final_newline():
    raw = b"version: 0\ntopic_id: n3dXUQ6_SFy3cVFrBqo8Tw"
    topic_id = "n3dXUQ6_SFy3cVFrBqo8Tw"
    assert checkpoint_files.parse_partition_metadata(raw, "f") == (topic_id, None)
    assert checkpoint_files.format_partition_metadata(topic_id, None) == raw
    mine = checkpoint_files.format_partition_metadata(topic_id, 3)
    assert mine == raw + b"\npartition: 3"
    assert checkpoint_files.parse_partition_metadata(mine, "f") == (topic_id, 3)


@pytest.mark.parametrize(
    "raw",
    [b"", b"version: 1\ntopic_id: n3dXUQ6_SFy3cVFrBqo8Tw", b"version: 0\n",
     b"version: 0\ntopic_id: short", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
     b"version: 0\ntopic_id: n3dXUQ6/SFy3cVFrBqo8T!",
     b"version: 0\ntopic_id: n3dXUQ6_SFy3cVFrBqo8Tw\npartition: x"],
)  # fmt: skip
def test_bad_partition_metadata(raw):
    """Trap 29: LogManagerTest.testIsStrayKraftMissingTopicId."""
    with pytest.raises(DataCorruptionError, match="f: "):
        checkpoint_files.parse_partition_metadata(raw, "f")
