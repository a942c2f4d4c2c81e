"""`tier verify` finds whatever a bucket lacks; `verify` says that it didn't look."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.cli.app import run as cli
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.log.admin import drop_topic
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.home import commits_of
from sparklog.service import Service, verify
from sparklog.service.verification.findings import Severity, Verification
from sparklog.service.verification.tier_verifier import verify_tier
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.remote_log_metadata.rebuild import rebuild
from sparklog.tiered.remote_log_metadata.topic import publish
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from sparklog.tiered.status import status
from tests.service.tiering.test_remote_log_manager import bases, once
from tests.tiered.archives import copies_of
from tests.tiered.logs import filled

RING = Keyring({"k": bytes(32)}, "k")


@pytest.fixture(params=[False, True], ids=["remote only", "local too"])
def made(
    tmp_path: Path, clock: ManualClock, store: FaultStore, request: pytest.FixtureRequest
) -> tuple[str, list[RemoteSegment], bool]:
    """A log, its copies and whether their records are local as well."""
    path = str(tmp_path / "log")
    config = {} if request.param else {"local_retention_bytes": "0"}
    with filled(path, clock, 16, **config) as log:
        for _ in range(3):
            once(path, clock, store)
        copies = sorted(copies_of(log, clock), key=lambda s: s.base)
    assert (bases(path)[0] == 0) == request.param
    return path, copies, request.param


def looked(path: str, store: FaultStore, **given: Any) -> Verification:
    given.setdefault("options", RemoteOptions(remote_patience_ms=0))
    return verify_tier(path, store=store, **given)


def test_what_is_whole_is_ok(made: tuple[str, list[RemoteSegment], bool], store: FaultStore):
    path, copies, _ = made
    for deep in (False, True):
        gets = store.counts.gets
        report = looked(path, store, deep=deep)
        assert report.ok and not report.findings
        assert (report.partitions, report.segments) == (1, len(copies))
        assert (store.counts.gets > gets) == deep
        assert looked("fault://bucket", store, deep=deep).ok


@pytest.mark.parametrize("name", [log_object, manifest_object])
def test_an_object_that_is_gone(
    made: tuple[str, list[RemoteSegment], bool],
    store: FaultStore,
    name: Callable[[RemoteSegment], str],
) -> None:
    path, copies, local = made
    del store.bucket.objects[name(copies[2])]
    (found,) = looked(path, store).findings
    assert found.file == f"{store.url}/{name(copies[2])}"
    assert (found.first, found.end) == (copies[2].base, copies[2].end)
    assert found.severity is (Severity.DIFFERENCE if local else Severity.DAMAGE)
    assert "missing" in found.what
    assert ("next round copies them again" in found.what) == local
    (found, *_) = looked("fault://bucket", store).findings
    assert (found.severity, found.first) == (Severity.DAMAGE, copies[2].base)


def test_all_that_is_gone(made: tuple[str, list[RemoteSegment], bool], store: FaultStore) -> None:
    path, copies, _ = made
    store.bucket.objects.clear()
    report = looked(path, store)
    assert not report.ok
    assert {f.first for f in report.findings} == {copy.base for copy in copies}
    assert verify(path).ok


def test_what_was_cut_and_what_was_changed(
    made: tuple[str, list[RemoteSegment], bool], store: FaultStore
) -> None:
    path, copies, _ = made
    name = log_object(copies[1])
    data, when = store.bucket.objects[name]
    store.bucket.objects[name] = data[:-3], when
    for deep in (False, True):
        (found,) = looked(path, store, deep=deep).findings
        assert (found.first, found.position) == (copies[1].base, len(data) - 3)
    store.bucket.objects[name] = data[:100] + bytes([data[100] ^ 1]) + data[101:], when
    assert looked(path, store).ok
    (found,) = looked(path, store, deep=True).findings
    assert "CRC-32C" in found.what
    store.bucket.objects[name] = data, when
    name = manifest_object(copies[1])
    raw, when = store.bucket.objects[name]
    for at in (10, len(raw) - 5):
        store.bucket.objects[name] = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :], when
        (found,) = looked(path, store, deep=True).findings
        assert found.file.endswith(name)


def test_what_the_log_has_forgotten(tmp_path: Path, clock: ManualClock, store: FaultStore) -> None:
    path = str(tmp_path / "log")
    with filled(path, clock, 16, local_retention_bytes="0") as log:
        for _ in range(3):
            once(path, clock, store)
        oldest = min(copies_of(log, clock), key=lambda s: s.base)
        for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
            oldest = oldest.become(state, clock())
            publish(commits_of(log), clock, [oldest])
    (found,) = looked(path, store).findings
    assert (found.severity, found.first) == (Severity.DAMAGE, 0)
    assert "tier rebuild" in found.what


def test_encrypted(tmp_path: Path, clock: ManualClock, store: FaultStore) -> None:
    """Its bytes are compared without the ring; indexes need it."""
    path, ring = str(tmp_path / "log"), tmp_path / "ring"
    ring.write_text("k " + "A" * 43 + "=\n")
    with filled(path, clock, 16):
        once(path, clock, store, keyring=RING)
    given = RemoteOptions(remote_keyring=str(ring), remote_patience_ms=0)
    for options in (RemoteOptions(), given):
        assert looked(path, store, deep=True, options=options).ok
    name = next(n for n in store.bucket.names() if n.endswith(".manifest"))
    raw, when = store.bucket.objects[name]
    store.bucket.objects[name] = raw[:-1] + bytes([raw[-1] ^ 1]), when
    (found,) = looked(path, store, deep=True, options=given).findings
    assert "doesn't decrypt" in found.what


def test_a_store_that_is_down_is_no_damage(
    made: tuple[str, list[RemoteSegment], bool], store: FaultStore
) -> None:
    store.down(10**9)
    with pytest.raises(StorageUnavailableError):
        looked(made[0], store)


def test_a_log_without_remote_storage(tmp_path: Path, clock: ManualClock) -> None:
    with filled(tmp_path / "log", clock, 4):
        pass
    with pytest.raises(InvalidRequestError, match="no remote storage"):
        verify_tier(tmp_path / "log")
    assert verify(tmp_path / "log").unseen is None


def test_the_commands(
    tmp_path: Path, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    path, bucket = tmp_path / "log", tmp_path / "bucket"
    bucket.mkdir()
    with filled(path, clock, 16):
        Service(path, remote=f"file://{bucket}", clock=clock).run_once()
    assert cli(["verify", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not looked at: " in said and f"in file://{bucket}; run `sparklog tier verify`" in said
    assert cli(["tier", "verify", str(path)]) == 0
    assert cli(["tier", "verify", f"file://{bucket}", "--deep", "--json"]) == 0
    capsys.readouterr()
    next(bucket.rglob("*.log")).unlink()
    assert cli(["tier", "verify", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"]["difference"] == 1


def test_a_log_that_forgot_all_copies(
    made: tuple[str, list[RemoteSegment], bool], clock: ManualClock, store: FaultStore
) -> None:
    """A rebuild from a wrong, empty store made it forget them, and all was called ok."""
    path, copies, local = made
    objects = dict(store.bucket.objects)
    store.bucket.objects.clear()
    if not local:
        with pytest.raises(StorageUnavailableError, match=r"no copy of this log.*t-0 \[0, "):
            rebuild(path, store=store, clock=clock)
        assert not looked(path, store).ok  # it still knows them
    with sparklog.open(path, "rw", clock=clock) as log:
        drop_topic(commits_of(log), REMOTE_METADATA)
    report = looked(path, store)
    assert report.ok == local
    assert all("no copy holds" in found.what for found in report.findings)
    store.bucket.objects.update(objects)
    assert len(rebuild(path, store=store, clock=clock).manifests) == len(copies)
    assert looked(path, store).ok


def test_copies_of_a_partition_whose_disk_is_away(
    made: tuple[str, list[RemoteSegment], bool], store: FaultStore
) -> None:
    """`tier status` and `tier verify` said "No such file or directory"."""
    path, copies, _ = made
    Path(path, "t-0").rename(Path(path).parent / "away")
    assert looked(path, store).ok and looked(path, store).segments == len(copies)
    (row,) = status(path).partitions
    assert (row.local_segments, row.remote_segments) == (0, len(copies))
    del store.bucket.objects[log_object(copies[0])]
    (found,) = looked(path, store).findings
    assert found.severity == Severity.DAMAGE  # nobody knows whether it is local as well
