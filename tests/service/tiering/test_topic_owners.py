"""Two logs at one URL with the same topics: a copied log dir, a restored one; who may go on."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import sparklog
from sparklog.cli.serve import serve
from sparklog.clock import ManualClock
from sparklog.fs import LOCAL
from sparklog.service import Service
from sparklog.storage.round_report import Report
from sparklog.storage.stored_json import seal
from sparklog.testing.faults import SimulatedKill
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.layout.manifest import manifest_object
from sparklog.tiered.layout.topic_owners import LOOK_MS, PREFIX
from sparklog.tiered.remote_log_metadata.rebuild import rebuild
from sparklog.tiered.restoring import restore
from sparklog.tiered.settings import read_settings
from tests.tiered.archives import archived, copied_names, copies_of, objects_wanted, readable
from tests.tiered.logs import TIERED, filled, grow

URL = "memory://bucket"


def service(
    path: str, clock: ManualClock, store: FaultStore, *, remote: str = URL, take_over: bool = False
) -> Service:
    return Service(
        path, remote=remote, clock=clock, take_over=take_over,
        options={"remote.log.manager.copier.thread.pool.size": "1"},
        opening=lambda url, options: store,
    )  # fmt: skip


def once(
    path: str, clock: ManualClock, store: FaultStore, *, remote: str = URL, take_over: bool = False
) -> Report:
    return service(path, clock, store, remote=remote, take_over=take_over).run_once()


def bases(path: str) -> list[int]:
    return sorted(int(p.stem) for p in Path(path, "t-0").glob("*.log"))


def copy(path: str) -> str:
    target = f"{path}-copy"
    shutil.copytree(path, target)
    return target


def assert_hands_off(path: str, clock: ManualClock, store: FaultStore) -> None:
    """Writing goes on, nothing is done in the bucket, and local segments stay."""
    objects, held = dict(store.bucket.objects), bases(path)
    with sparklog.open(path, "rw", clock=clock) as log:
        grow(log, clock, 10)
        clock.advance(7 * 3_600_000)  # a sweep would be due as well
        report = once(path, clock, store)
        (error,) = report.errors
        assert "--take-over" in error and "another URL" in error and error.startswith("t ")
        assert not (report.uploaded or report.removed or report.orphans or report.deleted)
        assert set(held) <= set(bases(path))
        log.delete_topic("t")
        once(path, clock, store)
    assert store.bucket.objects == objects


def test_a_copied_log_dir_is_noticed(path: str, clock: ManualClock, store: FaultStore) -> None:
    config = {"local_retention_bytes": "0", "retention_bytes": "3000"}
    with filled(path, clock, 12, **config):
        once(path, clock, store)
    other = copy(path)
    with sparklog.open(path, "rw", clock=clock) as log:
        grow(log, clock, 12)
        assert not once(path, clock, store).errors
    assert_hands_off(other, clock, store)
    with sparklog.open(path, "rw", clock=clock) as log:
        grow(log, clock, 12)
        assert not once(path, clock, store).errors
        readable(log, clock, store)
        assert set(store.bucket.names()) == objects_wanted(log, clock)


def test_the_one_that_runs_finds_out_as_well(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """The copy's service starts first: the original's, which never stopped, looks again."""
    with filled(path, clock, 12, local_retention_bytes="0"):
        running = service(path, clock, store)
        assert not running.run_once().errors
        running._open()
        running.run_once()
        other = copy(path)
        assert not once(other, clock, store).errors
        clock.advance(LOOK_MS)
        held = bases(path)
        assert any("one is a copy of the other" in e for e in running.run_once().errors)
        assert bases(path) == held
        running.close()


def test_taking_over_is_said_once(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 12):
        once(path, clock, store)
    other = copy(path)
    once(path, clock, store)
    assert once(other, clock, store).errors
    taking = service(other, clock, store, take_over=True)
    taking._open()
    assert not taking.run_once().errors
    assert once(path, clock, store).errors  # the original is the stranger now
    assert not once(path, clock, store, take_over=True).errors
    clock.advance(LOOK_MS)
    assert taking.run_once().errors  # it doesn't take it back
    taking.close()


def test_a_restored_log_takes_over(
    path: str, tmp_path: Path, clock: ManualClock, store: FaultStore
) -> None:
    """The machine died; the bucket is what is left. The log made of it goes on with its copies."""
    with filled(path, clock, 20, local_retention_bytes="0"):
        once(path, clock, store)
    shutil.rmtree(path)
    before = archived(store)
    again = str(tmp_path / "again")
    for name, (data, _) in store.bucket.objects.items():
        file = tmp_path / "bucket" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    restore(str(tmp_path / "bucket"), again, clock=clock)
    with sparklog.open(again, "rw", clock=clock) as log:
        log.alter_topic("t", config=TIERED | {"local.retention.bytes": "0"})
    left = dict(store.bucket.objects)
    (error,) = once(again, clock, store).errors
    assert path in error
    assert {n: v for n, v in store.bucket.objects.items() if n in left} == left
    assert len(copied_names(store.bucket)) == len(left) - 2
    assert not once(again, clock, store, take_over=True).errors
    with sparklog.open(again, "rw", clock=clock) as log:
        grow(log, clock, 10)
        report = once(again, clock, store)
        assert report.uploaded and not report.errors
        assert all(u.base >= max(before["t", 0]) for u in report.uploaded)
        readable(log, clock, store)
        assert archived(store)["t", 0].items() > before["t", 0].items()


def test_another_store_at_the_same_url_is_noticed(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    """A wrong endpoint or account: none of the copies is there, so nothing is to go there."""
    other = FaultStore(clock=clock)
    with filled(path, clock, 12, local_retention_bytes="0") as log:
        once(path, clock, store)
        grow(log, clock, 12)
        for dry_run in (True, False):
            report = service(path, clock, other).run_once(dry_run=dry_run)
            (error,) = report.errors
            assert "another store" in error and "endpoint_url" in error and "--take-over" in error
            assert not (report.uploaded or report.orphans or report.removed)
        assert not other.bucket.objects
        report = once(path, clock, store)
        assert report.uploaded and not report.errors
        readable(log, clock, store)
        grow(log, clock, 12)
        store.delete([manifest_object(copies_of(log, clock)[-1])])
        assert once(path, clock, store).uploaded  # one that is lost doesn't keep the others


def test_a_bucket_that_was_emptied_is_taken_over(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 12) as log:
        once(path, clock, store)
        store.bucket.objects.clear()
        grow(log, clock, 12)
        assert "another store" in once(path, clock, store).errors[0]
        assert once(path, clock, store, take_over=True).uploaded


def test_a_rebuild_takes_over(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 12):
        once(path, clock, store)
    other = copy(path)
    once(path, clock, store)
    assert once(other, clock, store).errors
    rebuild(other, store=store, clock=clock)
    assert not once(other, clock, store).errors
    assert once(path, clock, store).errors


def test_a_bucket_of_an_earlier_version(path: str, clock: ManualClock, store: FaultStore) -> None:
    """No owners, and settings that say only the URL: the first one owns what is there."""
    with filled(path, clock, 12):
        once(path, clock, store)
    settings = Path(path, "sparklog.remote")
    document = json.loads(settings.read_text())
    del document["remote"]["log_id"], document["remote"]["tokens"]
    settings.write_bytes(seal("remote", document["remote"]))
    store.delete([name for name in store.bucket.names() if name.startswith(PREFIX)])
    other = copy(path)
    assert not once(path, clock, store).errors
    assert once(other, clock, store).errors
    assert not once(path, clock, store).errors


def test_another_url_is_another_place(path: str, clock: ManualClock, store: FaultStore) -> None:
    """What the error says to do works: the copied log dir is used with another URL."""
    with filled(path, clock, 12):
        once(path, clock, store)
    other = copy(path)
    once(path, clock, store)
    assert once(other, clock, store).errors
    elsewhere = FaultStore(clock=clock)
    elsewhere.bucket.objects.update(store.bucket.objects)
    elsewhere.delete([name for name in store.bucket.names() if name.startswith(PREFIX)])
    assert not once(other, clock, elsewhere, remote="memory://other").errors
    assert not once(path, clock, store).errors


def test_owners_without_a_topic_are_swept(path: str, clock: ManualClock, store: FaultStore) -> None:
    """Also that of a topic that never had a copy; not those of other logs."""
    other_log = f"{path}-other"
    with filled(path, clock, 1) as log, filled(other_log, clock, 1):
        once(path, clock, store)
        once(other_log, clock, store)
        topic_id = log.topic("t").id
        assert PREFIX + topic_id in store.bucket.names()
        assert not copies_of(log, clock)
        log.delete_topic("t")
        kept = set(store.bucket.names()) - {PREFIX + topic_id}
        clock.advance(7 * 3_600_000)
        once(path, clock, store)
        assert {name for name in store.bucket.names() if PREFIX + topic_id != name} == kept
        assert PREFIX + topic_id not in store.bucket.names()


@pytest.mark.parametrize("number", range(1, 4))
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_makes_no_stranger(
    path: str, clock: ManualClock, store: FaultStore, number: int, after: bool
) -> None:
    """Killed between its own token and the bucket's, at the first start and at later ones."""
    with filled(path, clock, 12):
        for _ in range(3):
            store = store.reopen()
            store.crash_at(number, after=after)
            with contextlib.suppress(SimulatedKill):
                once(path, clock, store)
            store = store.reopen()
            assert not once(path, clock, store).errors


def test_a_store_that_is_down_makes_no_stranger(
    path: str, clock: ManualClock, store: FaultStore
) -> None:
    with filled(path, clock, 12, local_retention_bytes="0") as log:
        once(path, clock, store)
        grow(log, clock, 4)
        running = service(path, clock, store)
        running._open()
        put, tried = store.requests.put, []

        def lose(name: str, data: bytes, crc: int) -> None:
            tried.append(name)
            raise ConnectionRefusedError("the store takes no writes")

        store.requests.put = lose  # type: ignore[method-assign]
        assert any("takes no writes" in e for e in running.run_once().errors)
        assert tried[0].startswith(PREFIX)
        store.requests.put = put  # type: ignore[method-assign]
        report = running.run_once()
        assert report.uploaded and not report.errors
        running.close()


def test_a_damaged_owner_is_told(path: str, clock: ManualClock, store: FaultStore) -> None:
    with filled(path, clock, 12) as log:
        once(path, clock, store)
        settings = read_settings(LOCAL, path)
        assert settings is not None
        for owner in (log.topic("t").id, settings.log_id):
            store.put(PREFIX + owner, b"{}")
            assert any("--take-over" in e for e in once(path, clock, store).errors)
            assert not once(path, clock, store, take_over=True).errors


def test_the_command_takes_over(path: str, clock: ManualClock, tmp_path: Path) -> None:
    target = tmp_path / "bucket"
    target.mkdir()
    with filled(path, clock, 12):
        pass
    url = f"file://{target}"
    run = CliRunner()
    assert (
        run.invoke(serve, [path, "--remote", url, "--once"], standalone_mode=False).exit_code == 0
    )
    other = copy(path)
    run.invoke(serve, [path, "--once"], standalone_mode=False)
    refused = run.invoke(serve, [other, "--once", "--json"], standalone_mode=False)
    assert refused.return_value == 1
    assert "--take-over" in refused.output
    taken = run.invoke(serve, [other, "--once", "--take-over"], standalone_mode=False)
    assert taken.return_value == 0, taken.output
