"""Encrypted segments: read through the key ring, and not without it; blocks stay sealed on disk."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.clock import system_clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.segment_store import SegmentPut
from sparklog.tiered.copying.remote_storage_manager import RemoteStorageManager
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState, new_segment_id
from sparklog.tiered.target import open_store
from tests.service.logs import SMALL, T0, fill
from tests.tiered.logs import data_of

KEYS = {"a": "A" * 43 + "=", "b": "B" * 42 + "A="}


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path, Path]:
    """(log, archive, key ring): partition t-0, sealed under key b."""
    path, ring = tmp_path / "log", tmp_path / "ring.json"
    ring.write_text(json.dumps({"current": "b", "keys": KEYS}))
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=SMALL)
        fill(log, "t", 0, 30)
        topic_id = log.topic("t").id
    store = open_store(f"file://{tmp_path}/bucket")
    copier = RemoteStorageManager(store, system_clock, keyring=Keyring.load(str(ring)))
    directory = str(path / "t-0")
    bases = segment_bases(LOCAL, directory)
    for base, end in itertools.pairwise(bases):
        segment = RemoteSegment(
            topic="t", topic_id=topic_id, partition=0, id=new_segment_id(), base=base, end=end,
            max_timestamp=T0 + 500 * end - 1000, size=LOCAL.size(f"{directory}/{base:020d}.log"),
            epochs=((0, base),), state=SegmentState.COPY_STARTED, time_ms=0,
        )  # fmt: skip
        job = SegmentPut(
            segment=segment, data=data_of(segment, directory), config={}, interval_bytes=100
        )
        copier.copy(job)
    return path, tmp_path / "bucket", ring


def test_with_the_key_ring_it_reads_as_the_log(
    made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    path, bucket, ring = made
    options: dict[str, Any] = {
        "remote.keyring": str(ring),
        "remote.cache.directory": str(tmp_path / "cache"),
    }
    with sparklog.open(path) as log, sparklog.open(bucket, options=options) as archive:
        end = archive.offsets("t")[0][1]
        expected = log.read("t", end={0: end}).read_all()
        assert archive.read("t").read_all().equals(expected)
        for when in range(T0, T0 + 20_000, 500):
            assert archive.offsets_for_times("t", when) == log.offsets_for_times("t", when)
    kept = b"".join(f.read_bytes() for d in (bucket, tmp_path / "cache") for f in d.rglob("*.*"))
    assert b"t-3-a" not in kept
    assert b"t-3-a" in b"".join(f.read_bytes() for f in (path / "t-0").glob("*.log"))


def test_without_it_the_error_names_the_key(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, bucket, ring = made
    with sparklog.open(bucket) as archive:
        assert list(archive.topics()) == ["t"]
        with pytest.raises(InvalidRequestError, match=r"remote\.keyring .*'b'"):
            archive.read("t").read_all()
    wrong = tmp_path / "wrong.json"
    wrong.write_text(ring.read_text().replace("A" * 20, "C" * 20).replace("B" * 20, "D" * 20))
    with (
        sparklog.open(bucket, options={"remote.keyring": str(wrong)}) as archive,
        pytest.raises(InvalidRequestError, match="'b'"),
    ):
        archive.read("t").read_all()


def test_keys_rotate_without_the_logs(
    made: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, bucket, ring = made
    old = json.loads(ring.read_text())["keys"]
    logs = {file: file.read_bytes() for file in bucket.rglob("*.log")}
    manifests = len(list(bucket.rglob("*.manifest")))
    both, new = tmp_path / "both.json", tmp_path / "new.json"
    fresh = "C" * 42 + "A="
    both.write_text(json.dumps({"current": "c", "keys": {**old, "c": fresh}}))
    new.write_text(json.dumps({"current": "c", "keys": {"c": fresh}}))
    url = f"file://{bucket}"
    assert run(["tier", "rotate", url, "--keyring", str(new)]) == 2  # it can't unwrap the old ones
    assert "'b'" in capsys.readouterr().err
    for changed in (manifests, 0):
        assert run(["tier", "rotate", url, "--keyring", str(both), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["changed"] == changed
    assert {file: file.read_bytes() for file in bucket.rglob("*.log")} == logs
    with (
        sparklog.open(path) as log,
        sparklog.open(bucket, options={"remote.keyring": str(new)}) as archive,
    ):
        end = archive.offsets("t")[0][1]
        assert archive.read("t").read_all().equals(log.read("t", end={0: end}).read_all())
