"""Paths to partitions and keys, and back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.checkpoint import history, import_, verify
from sparklog.checkpoint.log_backed.layout import (
    METADATA_PARTITION,
    RecordAddress,
    address_of,
    path_of,
    stays_file,
)
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.names import parse_partition_dir
from tests.checkpoint.conftest import Golden
from tests.checkpoint.views import view


@pytest.mark.parametrize(
    ("path", "partition", "key"),
    [
        ("offsets/12", "offsets-0", "12"),
        ("commits/0", "commits-0", "0"),
        ("offsets/a/b", "metadata-0", "offsets/a/b"),
        ("metadata", "metadata-0", "metadata"),
        ("sources/0/9.compact", "metadata-0", "sources/0/9.compact"),
        ("state/0/1/7.delta", "state.0.default-1", "7.delta"),
        ("state/3/199/7_ab-c.changelog", "state.3.default-199", "7_ab-c.changelog"),
        ("state/0/1/left-keyToNumValues/7.delta", "state.0.left-keyToNumValues-1", "7.delta"),
        ("state/0/1/_metadata/schema", "metadata-0", "state/0/1/_metadata/schema"),
        ("state/0/_metadata/metadata", "metadata-0", "state/0/_metadata/metadata"),
        ("state/0/_stateSchema/default/0_x", "metadata-0", "state/0/_stateSchema/default/0_x"),
        # The name that stands for "no directory of its own" would collide with it.
        ("state/0/1/default/7.delta", "metadata-0", "state/0/1/default/7.delta"),
    ],
)
def test_places(path: str, partition: str, key: str) -> None:
    assert address_of(path) == RecordAddress(partition, key)
    assert path_of(partition, key) == path
    assert parse_partition_dir(partition) is not None, "Kafka would not take it for a partition"


names = st.text("abz019._-", min_size=1, max_size=8)
numbers = st.integers(0, 250).map(str)
paths = st.lists(
    names | numbers | st.sampled_from(["offsets", "commits", "state", "default", "_metadata"]),
    min_size=1, max_size=6,
).map("/".join)  # fmt: skip
state = st.tuples(numbers, numbers, names, names).map(lambda p: "state/" + "/".join(p))


@given(paths | state | state.map(lambda p: p.rpartition("/")[0]))
def test_every_path_comes_back(path: str) -> None:
    assert path_of(*address_of(path)) == path


@given(st.lists(paths | state, unique=True, min_size=2, max_size=8))
def test_no_two_paths_share_a_place(found: list[str]) -> None:
    assert len({address_of(path) for path in found}) == len(found)


def test_a_strange_partition() -> None:
    with pytest.raises(InvalidRequestError, match="move it away"):
        path_of("flights-0", "x")


def test_a_strange_partition_is_moved_away(golden: Golden, tmp_path: Path) -> None:
    path = golden("hdfs")
    import_(path)
    before = view(path)
    strange = path / "sparklog" / "flights-0"
    strange.mkdir()
    with pytest.raises(DataCorruptionError, match=r"flights-0 is no partition .*: move it away"):
        history(path)
    strange.rename(tmp_path / "flights-0")
    assert view(path) == before
    assert verify(path).findings == []


@pytest.mark.parametrize(
    ("path", "stays"),
    [
        ("state/0/0/5.zip", True),
        ("state/0/0/5_id.zip.crc", True),
        ("state/0/0/SSTs/000008-x.sst", True),
        ("state/0/0/logs/000008-x.log", True),
        ("offsets/.5.crc", True),
        ("offsets/.5.0a.tmp", True),
        ("sparklog.reset", True),
        ("state/0/0/5.changelog", False),
        ("state/0/0/5.changelog.crc", False),
        ("metadata", False),
        ("logs", False),
    ],
)
def test_what_stays_a_file(path: str, stays: bool) -> None:
    assert stays_file(path) is stays
    assert METADATA_PARTITION == "metadata-0"
