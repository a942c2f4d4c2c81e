"""A log that was restored to an earlier state under a query: nothing is skipped in silence."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog import OffsetOutOfRangeError
from sparklog.checkpoint.spark_files.metadata_logs import topics_of
from sparklog.source import open_homes
from sparklog.source.offsets import from_json, origins_from_json, parse_offsets, to_json
from sparklog.spark_versions import ReadAllAvailable
from sparklog.storage.groups import Origin
from tests.source.test_replaced import ALL, WARNS, append, at, stream, values

Json = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Topic t: offsets [0, 10), values "old"; `copy` holds the first four."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        append(log, "old", 4)
    shutil.copytree(path, tmp_path / "copy")
    with sparklog.open(path, "rw") as log:
        append(log, "old", 6)
    return str(path)


def restore(path: str, *, new: int) -> None:
    """Put the copy in its place and write `new` records to it; nothing is kept of the old files."""
    open_homes.HOMES.clear()
    home = Path(path)
    home.rename(home.with_name("gone"))
    shutil.copytree(home.with_name("copy"), home)
    if new:
        with sparklog.open(path, "rw") as log:
            append(log, "new", new)


def run(reader: Any, start: Json, *, now: bool) -> tuple[Json, list[tuple[int, str]]]:
    """What one run with trigger AvailableNow, or some triggers, read from `start` on."""
    if now:
        reader.prepareForTriggerAvailableNow()
    found: list[tuple[int, str]] = []
    limit = reader.getDefaultReadLimit()
    for _ in range(9):
        end = reader.latestOffset(start, limit)
        if end == start:
            return end, found
        found += values(reader, reader.partitions(start, end))
        start = end
    raise AssertionError(f"it never comes to an end: {start}")


@pytest.mark.parametrize("new", [0, 2, 6, 20])
@pytest.mark.parametrize("now", [False, True], ids=["", "AvailableNow"])
@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "100"}], ids=["", "limited"])
def test_a_query_that_was_ahead(
    path: str, new: int, now: bool, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    start, _ = run(stream(path), at(0), now=False)
    assert start == at(10)
    restore(path, new=new)
    says = r"offsets \[4, 10\) of t-0 (belong to another history|can't be read)"
    with pytest.raises(OffsetOutOfRangeError, match=f"{says}.*failOnDataLoss=false"):
        run(stream(path), start, now=now)
    with caplog.at_level(logging.WARNING):
        end, found = run(stream(path, **options, **WARNS), start, now=now)
    assert found == [(n, "new") for n in range(4, 4 + new)]
    assert from_json(end) == {("t", 0): 4 + new}
    assert "offsets [4, 10) of t-0" in caplog.text
    with sparklog.open(path, "rw") as log:  # and so in the next run
        append(log, "next", 1)
    assert run(stream(path, **options), end, now=now)[1] == [(4 + new, "next")]


def test_a_living_query_is_told_as_well(path: str) -> None:
    reader = stream(path)
    start = reader.latestOffset(at(0), ALL)
    restore(path, new=20)
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets \[4, 10\) of t-0 belong to another"):
        reader.latestOffset(start, ALL)


def test_a_micro_batch_that_was_planned_before(path: str) -> None:
    """Its replay reads what both histories have, no more."""
    planned = stream(path).latestOffset(at(2), ALL)
    restore(path, new=20)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[4, 10\) of t-0 belong to another history"):
        stream(path).partitions(at(2), planned)
    reader = stream(path, **WARNS)
    assert values(reader, reader.partitions(at(2), planned)) == [(2, "old"), (3, "old")]
    assert len(run(reader, planned, now=False)[1]) == 20


def test_positions_remember_the_history_only_where_there_was_another(path: str) -> None:
    restore(path, new=6)
    reader = stream(path)
    end = reader.latestOffset(at(2), ALL)
    ((_, origin),) = origins_from_json(end).items()
    assert origin.since == 4
    assert end == {"t": {"0": 10}, "t#epoch": {"0": origin.epoch}, "t#since": {"0": 4}}
    assert stream(path, startingOffsets="latest").initialOffset() == end
    assert stream(path, startingOffsets="earliest").initialOffset() == at(0)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.latestOffset(at(4), ALL) == end
    # others that read a checkpoint's offsets
    assert parse_offsets(json.dumps(end), option="startingOffsets") == {("t", 0): 10}
    assert topics_of(json.dumps(end)) == {("t", 0): 10}
    # the same numbers of the old history, as an older sparklog kept them
    with pytest.raises(OffsetOutOfRangeError, match=r"\[4, 10\) of t-0 belong to another history"):
        reader.latestOffset(at(10), ALL)


def test_the_first_history_may_come_back(path: str) -> None:
    restore(path, new=10)
    end, found = run(stream(path), at(0), now=False)
    assert len(found) == 14
    home = Path(path)
    shutil.rmtree(home)
    home.with_name("gone").rename(home)
    open_homes.HOMES.clear()
    with sparklog.open(path, "rw") as log:
        append(log, "old", 20)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[4, 14\) of t-0 belong to another history"):
        stream(path).latestOffset(end, ALL)


def test_origins_survive_the_checkpoint() -> None:
    offsets = {("t", 0): 5, ("t", 1): 7, ("u", 0): 1}
    origins = {("t", 0): Origin(9, 2), ("u", 0): Origin(0, 0)}
    nested = json.loads(json.dumps(to_json(offsets, origins)))
    assert from_json(nested) == offsets
    assert origins_from_json(nested) == {("t", 0): Origin(9, 2)}
