"""What `tier status` says, for people and for scripts."""

import json
from pathlib import Path

import pytest

import sparklog
from sparklog.cli.app import run as cli
from sparklog.clock import ManualClock, system_clock
from sparklog.fs import LOCAL
from sparklog.logdir.home import commits_of
from sparklog.tiered.remote_log_metadata.topic import ensure_topic, publish
from sparklog.tiered.remote_segment import SegmentState
from sparklog.tiered.settings import RemoteSettings, write_settings
from sparklog.tiered.status import by_topic, status
from tests.logdir.partitions import T0
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, copy_partition


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """t: the first two segments are remote, a third is on its way; u isn't tiered."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={**SMALL, "remote.storage.enable": True})
        log.create_topic("u", config=SMALL)
        fill(log, "t", 0, 30)
        fill(log, "u", 0, 3)
        copied = copy_partition(path / "t-0", DictStore())
        ensure_topic(commits_of(log))
        publish(commits_of(log), system_clock, copied[:2], found=True)
        publish(commits_of(log), system_clock, [copied[2].restarted()])
    write_settings(LOCAL, str(path), RemoteSettings("s3://bucket/prefix"))
    return path


def test_what_lies_where(path: Path) -> None:
    found = status(path, clock=ManualClock(T0 + 100_000))
    assert found.url == "s3://bucket/prefix"
    (row,) = found.partitions
    assert (row.topic, row.remote_segments, row.unfinished) == ("t", 2, 1)
    assert row.remote_start == row.local_start == row.log_start == 0
    assert row.pending_segments == row.local_segments - 3
    assert row.local_bytes > row.pending_bytes + row.remote_bytes > 0
    assert row.puts == 4
    assert 60_000 < row.lag_ms < 100_000
    assert SegmentState.COPY_STARTED < SegmentState.COPY_FINISHED
    (topic,) = by_topic(found.partitions)
    assert topic["pending_bytes"] == row.pending_bytes


def test_on_the_command_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["tier", "status", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["topics"][0]["remote_segments"] == 2
    assert cli(["tier", "status", str(path)]) == 0
    text = capsys.readouterr().out
    assert "s3://bucket/prefix" in text
    assert " t " in f" {text.splitlines()[-2]} "


def test_restore_on_the_command_line(
    tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DictStore()
    copied = copy_partition(path / "t-0", store)
    for name, data in store.objects.items():
        (tmp_path / "bucket" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bucket" / name).write_bytes(data)
    back = str(tmp_path / "back")
    bucket = str(tmp_path / "bucket")
    assert cli(["tier", "restore", bucket, back, "--start", "yesterday"]) == 2
    assert "--start" in capsys.readouterr().err
    assert cli(["tier", "restore", bucket, back, "--topic", "t", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["offsets"] == {"t": {"0": [0, copied[-1].end]}}
    assert cli(["verify", back]) == 0
