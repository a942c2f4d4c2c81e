"""A tier that is encrypted stays so: without its key ring nothing is copied there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparklog.cli.tier import tier
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.log.admin import drop_topic
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.home import commits_of
from sparklog.service import Service
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.encryption.key_rotation import rotate
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.settings import read_settings, write_settings
from sparklog.tiered.status import keys_of, status
from tests.service.tiering.test_remote_log_manager import once
from tests.tiered.logs import filled, grow, manifests

RING = Keyring({"k": bytes(32)}, "k")


def plain_copies(store: FaultStore) -> int:
    return sum(manifest.encryption is None for manifest, _ in manifests(store))


def test_without_the_ring_nothing_is_copied(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 12) as log:
        once(path, clock, store, keyring=RING)
        grow(log, clock, 10)
        for _ in range(2):
            report = once(path, clock, store)
            assert not report.uploaded
            assert report.remote_lag_bytes
            assert any("encrypted (key 'k')" in e and "--keyring" in e for e in report.errors)
        assert not plain_copies(store)
        report = once(path, clock, store, keyring=RING)
        assert report.uploaded and not report.errors
        assert not plain_copies(store)


@pytest.mark.parametrize("metadata", [True, False])
def test_a_log_that_does_not_know_looks_at_its_bucket(
    path: str, clock: ManualClock, store: FaultStore, *, metadata: bool
) -> None:
    """As one of an earlier version, or whose sparklog.remote was lost, and its metadata too."""
    with filled(path, clock, 12) as log:
        once(path, clock, store, keyring=RING)
        kept = read_settings(LOCAL, path)
        assert kept is not None and kept.key_id == "k"
        write_settings(LOCAL, path, replace(kept, key_id=None))
        if not metadata:
            drop_topic(commits_of(log), REMOTE_METADATA)
        grow(log, clock, 10)
        assert not once(path, clock, store).uploaded
        assert not plain_copies(store)
        assert status(path).key_id == "k"


def test_encryption_is_ended_on_purpose(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 12) as log:
        once(path, clock, store, keyring=RING)
        grow(log, clock, 10)
        with pytest.raises(InvalidRequestError, match="exclude each other"):
            Service(path, keyring=RING, plain=True)
        report = once(path, clock, store, plain=True)
        assert report.uploaded and not report.errors
        grow(log, clock, 10)
        assert once(path, clock, store).uploaded
        assert status(path).key_id == ""
        counts = keys_of(path, store=store)["t"]
        assert counts["k"] and counts[""] == plain_copies(store) > 0


def test_a_rotation_counts_plain_copies_apart(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 12) as log:
        plain = len(once(path, clock, store).uploaded)
        grow(log, clock, 10)
        sealed = len(once(path, clock, store, keyring=RING).uploaded)
    assert plain and sealed
    new = Keyring({"k": bytes(32), "l": bytes([1]) * 32}, "l")
    done = rotate("memory://bucket", new, store=store)
    assert (done.changed, done.unchanged, done.plain) == (sealed, 0, plain)
    done = rotate("memory://bucket", new, store=store)
    assert (done.changed, done.unchanged, done.plain) == (0, sealed, plain)


def test_the_status_tells_the_key(path: str, clock: ManualClock, tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    run = CliRunner()

    def shown(*more: str) -> str:
        return run.invoke(tier, ["status", path, *more], standalone_mode=False).output

    with filled(path, clock, 12):
        Service(path, remote=f"file://{bucket}", keyring=RING, clock=clock).run_once()
    assert "encryption: new copies under key k" in shown()
    copies = len(list(bucket.rglob("*.manifest")))
    assert f"t: {copies} copies under key k" in shown("--keys")
    found = json.loads(shown("--keys", "--json"))
    assert (found["key"], found["keys"]) == ("k", {"t": {"k": copies}})
