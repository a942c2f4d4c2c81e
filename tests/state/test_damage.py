"""Damaged records: the JVM steps over the same ones as sparklog.checkpoint does, and no others."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.errors import DataCorruptionError
from sparklog.fs import LOCAL
from tests.state.manager import Manager

pytestmark = pytest.mark.spark

Managers = Callable[..., Manager]
Contents = dict[str, bytes] | None


def by_python(root: Path) -> Contents:
    try:
        partition = CheckpointPartition(LOCAL, str(root / "sparklog" / "offsets-0"))
    except DataCorruptionError:
        return None
    return {key: partition.read(key) or b"" for key, _ in partition.live()}


def by_spark(manager: Manager) -> Contents:
    try:
        return {name: manager.read(f"offsets/{name}") for name in manager.list("offsets")}
    except Py4JJavaError as error:
        if "is damaged at position" not in str(error):
            raise
        return None


@pytest.fixture(params=[1 << 30, 400], ids=["a segment", "segments"])
def original(request: pytest.FixtureRequest, managers: Managers) -> Manager:
    """Plans 0 to 2 purged, 3 written again, 4 and 5 live."""
    manager = managers("ckpt", segment_bytes=request.param)
    for n in range(6):
        manager.write(f"offsets/{n}", b"v1\n{}\n%d" % n * 12)
    for n in range(3):
        manager.delete(f"offsets/{n}")
    manager.write("offsets/3", b"again", overwrite=True)
    manager.write("offsets/6", b"v1")
    return manager


def damaged(original: Manager, root: Path, rng: random.Random, count: int) -> tuple[str, int]:
    """Copy a checkpoint and damage some bytes in a row of one record, not of the last one."""
    shutil.copytree(original.root, root)
    partition = CheckpointPartition(LOCAL, str(root / "sparklog" / "offsets-0"))
    rows = [(s, row) for s in partition.segments for table in s.tables for row in table][:-1]
    segment, row = rng.choice(rows)
    at = rng.randrange(int(row["size"]) - count)
    path = Path(partition.path(segment))
    raw = bytearray(path.read_bytes())
    for place in range(count):
        raw[int(row["position"]) + at + place] ^= rng.randrange(1, 256)
    path.write_bytes(raw)
    return f"offset {row['base_offset']} byte {at}", count


def test_both_step_over_the_same(original: Manager, managers: Managers, tmp_path: Path) -> None:
    rng, whole = random.Random(11), by_spark(original)
    assert whole is not None
    seen = {"whole": 0, "error": 0}
    for number in range(40):
        root = tmp_path / f"copy-{number}"
        what = damaged(original, root, rng, rng.choice([1, 1, 1, 2, 9, 40]))
        told = by_python(root)
        assert by_spark(managers(root.name)) == told, what
        assert told in (None, whole), what
        seen["error" if told is None else "whole"] += 1
        shutil.rmtree(root)
    assert min(seen.values()) > 6, seen


def test_a_query_goes_on_over_a_dead_record(
    original: Manager, managers: Managers, tmp_path: Path
) -> None:
    """Written, deleted, cleaned as before; the cleaning takes the damage with it."""
    segments = sorted(original.partition("offsets-0").glob("*.log"))
    raw = bytearray(segments[0].read_bytes())
    raw[70] ^= 0x20
    copy = tmp_path / "copy"
    shutil.copytree(original.root, copy)
    (copy / "sparklog" / "offsets-0" / segments[0].name).write_bytes(raw)
    manager = managers("copy")
    for n in range(7, 12):
        manager.write(f"offsets/{n}", b"x" * 30_000)
    for n in range(7, 11):
        manager.delete(f"offsets/{n}")
    found = by_python(copy)
    assert found == by_spark(manager)
    assert found is not None
    assert sorted(found, key=int) == ["3", "4", "5", "6", "11"]
    partition = CheckpointPartition(LOCAL, str(copy / "sparklog" / "offsets-0"))
    assert not any(segment.damaged for segment in partition.segments)


@pytest.mark.parametrize("what", ["directories", "segments", "order"])
def test_swapped_partitions_are_refused(managers: Managers, what: str) -> None:
    """Both managers, one that knew the files before, and a new one; Python says the same."""
    manager = managers("ckpt", segment_bytes=1)
    for part in "01":
        for version in (1, 2):
            manager.write(f"state/0/{part}/{version}.delta", part.encode() * 20)
    first, second = (manager.partition(f"state.0.default-{part}") for part in "01")
    if what == "directories":
        pairs = [(first, second)]
    elif what == "segments":
        pairs = [(first / name, second / name) for name in ("00000000000000000001.log",)]
    else:
        pairs = [(first / f"{0:020}.log", first / f"{1:020}.log")]
    for one, other in pairs:
        aside = one.with_name("aside-0")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)
    for each in (manager, managers("ckpt")):
        with pytest.raises(Py4JJavaError, match="swapped or copied"):
            each.read("state/0/0/2.delta")
        with pytest.raises(Py4JJavaError, match="swapped or copied"):
            each.write("state/0/0/3.delta", b"more")
    with pytest.raises(DataCorruptionError, match="swapped or copied"):
        CheckpointPartition(LOCAL, str(first))
