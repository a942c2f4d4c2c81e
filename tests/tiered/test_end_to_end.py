"""All of tiering on a real S3 server: the service copies and expires, everybody reads, restores."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import StorageUnavailableError
from sparklog.fs import LOCAL
from sparklog.logdir.segment_files import segment_bases
from sparklog.service import Service, verify
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.restoring import restore
from sparklog.tiered.settings import read_settings, write_settings
from tests.paths import ROOT
from tests.tiered.s3 import S3Server

pytestmark = pytest.mark.s3
CONFIG = {
    "internal.segment.bytes": 60_000,
    "remote.storage.enable": True,
    "local.retention.bytes": 70_000,
    "retention.ms": -1,
    "file.delete.delay.ms": 0,
}


def fill(log: sparklog.Log, count: int) -> None:
    for n in range(count):
        keys = [f"k{i}" for i in range(300)]
        log.append(
            "t", pa.table({"key": keys, "value": [f"value-{n}-{i}" * 5 for i in range(300)]})
        )


@pytest.mark.parametrize("encrypted", [pytest.param(False, marks=pytest.mark.deep), True])
def test_there_and_back(s3: S3Server, tmp_path: Path, encrypted: bool) -> None:
    path, url, given = tmp_path / "log", s3.bucket() + "/logs", {"storage_options": s3.options()}
    ring = tmp_path / "ring.txt"
    ring.write_text("2026 " + "A" * 43 + "=\n")
    options = {"remote.keyring": str(ring)} if encrypted else {}
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config=CONFIG)
        fill(log, 20)
        whole, spans = log.read("t").read_all(), log.offsets("t")
    keyring = Keyring.load(str(ring)) if encrypted else None
    with Service(path, remote=url, keyring=keyring, **given) as service:
        for _ in range(3):
            assert not service.run_once().errors
    assert min(segment_bases(LOCAL, str(path / f"t-{p}"))[0] for p in (0, 1)) > 0
    assert verify(path).ok
    with sparklog.open(path, options=options, **given) as log:
        assert log.offsets("t") == spans
        assert log.read("t").read_all().equals(whole)
        local = log.offsets_for_times("t", -4)
        assert all(offset > 0 for offset in local.values() if offset is not None)
    with sparklog.open(url, options=options, **given) as archive:
        ends = {p: end for p, (_, end) in archive.offsets("t").items()}
        expected = log_part(whole, ends)
        assert archive.read("t").read_all().equals(expected)
    if not encrypted:
        restore(url, tmp_path / "back", **given)
        assert verify(tmp_path / "back").ok
        with sparklog.open(tmp_path / "back") as back:
            assert back.read("t").read_all().equals(expected)


def log_part(whole: pa.Table, ends: dict[int, int]) -> pa.Table:
    rows = zip(whole["partition"].to_pylist(), whole["offset"].to_pylist(), strict=True)
    return whole.filter(pa.array([offset < ends[p] for p, offset in rows]))


@pytest.mark.deep
def test_wrong_credentials_lose_nothing(s3: S3Server, tmp_path: Path) -> None:
    path, url = tmp_path / "log", s3.bucket() + "/logs"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={**CONFIG, "local.retention.bytes": 0})
        fill(log, 6)
        whole = log.read("t").read_all()
        with Service(path, remote=url, storage_options=s3.options(secret="wrong")) as service:
            report = service.run_once()
            assert any("check key, secret" in error for error in report.errors)
            assert not report.uploaded
            assert not report.deleted
        fill(log, 1)  # writing goes on
    with Service(path, storage_options=s3.options()) as service:
        report = service.run_once()
        assert report.uploaded
        assert not report.errors
    with sparklog.open(path, storage_options=s3.options()) as log:
        assert log.read("t", end={0: whole.num_rows}).read_all().equals(whole)
    with sparklog.open(path, storage_options=s3.options(secret="wrong")) as log:
        Service(path, storage_options=s3.options()).run_once()
        assert segment_bases(LOCAL, str(path / "t-0"))[0] > 0
        with pytest.raises(StorageUnavailableError, match="check key, secret"):
            log.read("t", start={0: 0}).read_all()
    port = s3.options() | {"endpoint_url": "http://127.0.0.1:1"}
    given: Any = {"storage_options": port, "options": {"remote.patience.ms": 0}}
    with (
        sparklog.open(path, **given) as log,
        pytest.raises(StorageUnavailableError, match=r"can't read s3://.*Could not connect"),
    ):
        log.read("t", start={0: 0}).read_all()


@pytest.mark.deep
def test_a_bucket_of_that_name_in_another_store(s3: S3Server, tmp_path: Path) -> None:
    """As by a wrong endpoint_url: it is no damage, and the right store has all of it."""
    path, url = tmp_path / "log", s3.bucket() + "/logs"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={**CONFIG, "local.retention.bytes": 0})
        fill(log, 6)
        whole = log.read("t").read_all()
    for _ in range(2):
        Service(path, remote=url, storage_options=s3.options()).run_once()
    assert segment_bases(LOCAL, str(path / "t-0"))[0] > 0
    settings = path / "sparklog.remote"
    right = settings.read_bytes()
    kept = read_settings(LOCAL, str(path))
    assert kept is not None
    write_settings(LOCAL, str(path), replace(kept, url=s3.bucket() + "/logs"))
    with (
        sparklog.open(path, storage_options=s3.options()) as log,
        pytest.raises(StorageUnavailableError, match="correct endpoint_url and credentials"),
    ):
        log.read("t").read_all()
    settings.write_bytes(right)
    with sparklog.open(path, storage_options=s3.options()) as log:
        assert log.read("t").read_all().equals(whole)


@pytest.mark.deep
def test_the_example(s3: S3Server) -> None:
    example = [sys.executable, str(ROOT / "examples" / "archive.py"), s3.bucket() + "/flights"]
    done = subprocess.run(
        [*example, "--storage-options", json.dumps(s3.options())],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" 67 f") == 3  # the bucket's name may hold a 67, too
