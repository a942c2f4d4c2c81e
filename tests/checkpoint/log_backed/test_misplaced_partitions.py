"""Partitions of a log-backed checkpoint that are missing, swapped or copied over one another.

The checkpoint is one that Spark wrote, imported: two partitions of state, 14 batches. All other
damage is in tests/damage/checkpoint.py.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.checkpoint.convert import import_
from sparklog.checkpoint.history import history
from sparklog.checkpoint.log_backed.layout import LOGS, partition_tag
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append
from sparklog.checkpoint.verify import verify
from sparklog.errors import DataCorruptionError, SparklogError
from sparklog.format.batch import seal
from sparklog.fs import LOCAL
from sparklog.service.verification.findings import Severity
from tests.checkpoint.conftest import Golden

SEGMENT = "00000000000000000000.log"
NEIGHBOURS = {
    "offsets-0": "commits-0",
    "commits-0": "offsets-0",
    "metadata-0": "offsets-0",
    "state.0.default-0": "state.0.default-1",
    "state.0.default-1": "metadata-0",
}


def missing(path: Path, _: Path) -> None:
    shutil.rmtree(path)


def swapped(path: Path, other: Path) -> None:
    path.rename(path.with_name("aside"))
    other.rename(path)
    path.with_name("aside").rename(other)


def swapped_segments(path: Path, other: Path) -> None:
    (path / SEGMENT).rename(path / "aside")
    (other / SEGMENT).rename(path / SEGMENT)
    (path / "aside").rename(other / SEGMENT)


def duplicated(path: Path, other: Path) -> None:
    """A copy lies where the neighbour was."""
    shutil.rmtree(other)
    shutil.copytree(path, other)


def duplicated_segment(path: Path, _: Path) -> None:
    """A copy of the segment follows it, under the name of later offsets."""
    end = CheckpointPartition(LOCAL, str(path)).next_offset
    shutil.copy(path / SEGMENT, path / f"{end:020}.log")


Damage = Callable[[Path, Path], None]
DAMAGES: list[Damage] = [missing, swapped, swapped_segments, duplicated, duplicated_segment]


@pytest.fixture
def imported(golden: Golden) -> Path:
    path = golden("hdfs")
    import_(path)
    assert verify(path).findings == []
    return path


@pytest.mark.parametrize("name", NEIGHBOURS)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_verify_reports_it(imported: Path, name: str, damage: Damage) -> None:
    logs = imported / LOGS
    damage(logs / name, logs / NEIGHBOURS[name])
    report = verify(imported)
    assert not report.ok
    assert report.outlook
    repaired = verify(imported, repair=True)
    assert repaired.batches in (report.batches, verify(imported).batches)
    if damage is not missing:
        assert not verify(imported).ok, "a repair doesn't know what is right"
        with pytest.raises(DataCorruptionError):
            history(imported)


def test_the_log_dir_is_missing(imported: Path) -> None:
    """Also after a query tried to start, which makes an empty one."""
    shutil.rmtree(imported / LOGS)
    for directory in (imported, None):
        report = verify(imported)
        assert not report.ok
        assert "missing or empty" in report.findings[0].what
        assert "can't be started" in report.outlook
        with pytest.raises(SparklogError, match="missing or empty"):
            history(imported)
        if directory is not None:
            (imported / LOGS).mkdir()
            (imported / LOGS / "sparklog.lock").write_bytes(b"")


def test_the_advice_puts_it_right(imported: Path) -> None:
    """The message names the partition that a file belongs to; moved back, all is well."""
    logs = imported / LOGS
    swapped(logs / "state.0.default-0", logs / "state.0.default-1")
    found = [f for f in verify(imported).findings if f.severity is Severity.DAMAGE]
    assert {f.what.split(", not to")[0] for f in found} > {
        "the record was written to state.0.default-0",
        "the record was written to state.0.default-1",
    }
    swapped(logs / "state.0.default-0", logs / "state.0.default-1")
    assert verify(imported).findings == []


def test_records_of_older_versions_have_no_tag(imported: Path) -> None:
    """They are read; one newer record tells whose the segment is."""
    for directory in sorted((imported / LOGS).glob("*-*")):
        raw = bytearray((directory / SEGMENT).read_bytes())
        table = CheckpointPartition(LOCAL, str(directory)).segments[0].tables[0]
        for row in table:
            at, end = int(row["position"]), int(row["position"] + row["size"])
            assert row["base_sequence"] == partition_tag(directory.name)
            raw[at + 53 : at + 57] = b"\xff" * 4
            batch = raw[at:end]
            seal(batch)
            raw[at:end] = batch
        (directory / SEGMENT).write_bytes(raw)
    assert verify(imported).findings == []
    state = [imported / LOGS / f"state.0.default-{n}" for n in (0, 1)]
    swapped_segments(*state)
    assert verify(imported).ok, "PROTOCOL.md says that this can't be detected"
    swapped_segments(*state)
    append(CheckpointPartition(LOCAL, str(state[0])), [Record("x.tmp", None, 0)])
    assert verify(imported).ok
    swapped_segments(*state)
    assert not verify(imported).ok
