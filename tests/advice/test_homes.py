"""Calls on logs in directories, in stores and in tiers that are refused, and what is advised."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.diskless.import_objects import BucketTarget
from sparklog.diskless.log_creation import restore_tier
from sparklog.errors import SparklogError
from sparklog.fs import LocalFileSystem
from sparklog.log.positions import to_ms
from sparklog.logdir.home import commits_of
from sparklog.opening import open_log
from sparklog.service import Service, verify
from sparklog.service.health import examine
from sparklog.service.metrics.collecting import collect
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.settings import REMOTE_NAME, SPARE_NAME
from sparklog.tiered.target import open_store
from tests.advice import test_arguments as arguments
from tests.advice.test_arguments import (
    NAIVE,
    ROW,
    Call,
    Case,
    Place,
    after,
    archive,
    cli,
    on_log,
    place,
    raised,
    store_log,
)
from tests.log.forks import fork

__all__ = ["place"]

KEY = "k " + "A" * 43 + "="
MERGED = {"diskless.merge.max.extents": 2, "diskless.merge.interval.ms": 1}


def count(path: str, topic: str = "t", **more: Any) -> int:
    with sparklog.open(path, **more) as log:
        return log.read(topic).read_all().num_rows


def restored(url: str, new_url: str, **more: Any) -> None:
    """Make the remote segments at a URL a log in a store."""
    restore_tier(open_store(url), BucketTarget(store=open_store(new_url)), **more)


def holds(rows: int, path: Callable[[Place], str], topic: str = "t") -> Call:
    """A check that follows the advised calls."""

    def checked(place: Place) -> None:
        assert count(path(place), topic) == rows

    return checked


def own_store(place: Place) -> str:
    """Return the directory of a log that is kept in a store."""
    with sparklog.open(f"file://{place.new('s')}", "rw") as log:
        log.create_topic("t")
    return place.new("s")


def raised_start(place: Place) -> None:
    """Let Kafka's file of log starts, which has no checksum, name a later offset."""
    path = Path(place.log) / "log-start-offset-checkpoint"
    path.write_text("0\n1\nt 0 2\n")


def unsound(place: Place, mode: str) -> None:
    """Open a log whose directory lies on a network file system."""

    class Nfs(LocalFileSystem):
        def kind(self, path: str) -> str:
            return "nfs4" if path == place.log else super().kind(path)

    open_log(place.log, mode=mode, fs=Nfs()).close()


def lost_settings(place: Place) -> str:
    """Return the URL of a log's copies, of which the log knows nothing any more."""
    url = archive(place)
    for name in (REMOTE_NAME, SPARE_NAME):
        os.unlink(f"{place.log}/{name}")
    shutil.rmtree(f"{place.log}/__remote_log_metadata-0")
    return url


def keyring(place: Place) -> dict[str, str]:
    return {"remote.keyring": place.file("keys", KEY)}


def ring(place: Place) -> Keyring:
    return Keyring.load(place.file("keys", KEY))


def sealed_store(place: Place) -> str:
    with sparklog.open(place.url, "rw", options=keyring(place)) as log:
        log.create_topic("t")
        for _ in range(3):
            log.append("t", pa.table({"value": [os.urandom(200_000)]}))
    return place.url


def sealed_archive(place: Place) -> str:
    url = f"file://{place.new('copies')}"
    tiered_topic(place)
    with Service(place.log, remote=url, keyring=ring(place)) as service:
        assert not service.run_once().errors
    return url


def complain(service: Service) -> None:
    """Do a round; raise what it reports as an error."""
    with service:
        report = service.run_once()
    if report.errors:
        raise SparklogError("; ".join(report.errors))


def tiered_topic(place: Place, records: int = 3) -> None:
    with place.opened() as log:
        log.create_topic("a", config=arguments.TIERED)
        for _ in range(records):
            log.append("a", ROW)


def with_gap(place: Place) -> str:
    """Return the URL of copies, of which one in the middle is lost."""
    url = f"file://{place.new('copies')}"
    tiered_topic(place, 6)
    with Service(place.log, remote=url) as service:
        assert not service.run_once().errors
    shutil.copytree(place.new("copies"), place.new("backup"))
    manifests = sorted(Path(place.new("copies")).rglob("*.manifest"))
    for file in manifests[1].parent.glob(manifests[1].stem + "*"):
        file.unlink()
    return url


OF_LOG: list[Case] = [
    ("leave it unchanged", on_log(lambda log: log.delete_topic("__remote_log_metadata")),
     (on_log(lambda log: log.append("t", ROW)),)),
    ("pass a datetime with a time zone, such as datetime(..., tzinfo=timezone.utc)",
     lambda p: to_ms(NAIVE),
     (lambda p: to_ms(NAIVE.replace(tzinfo=arguments.dt.UTC)),)),
    ("to continue without the missing records, pass start={{}",
     on_log(lambda log: (log.commit_offsets("g", {"t": {0: 1}}), log.delete_records("t", {0: 2}),
                         log.read("t", [0], group="g").read_all())),
     tuple(on_log(lambda log, at=at: log.read("t", [0], group="g", start={0: at}).read_all())
           for at in (-2, -1, 2))),
]  # fmt: skip

OF_DIRECTORIES: list[Case] = [
    ("open it as file://{}, alone", lambda p: sparklog.open(f"{own_store(p)},{p.new('b')}", "rw"),
     (lambda p: sparklog.open(f"file://{p.new('s')}", "rw").append("t", ROW),)),
    ("open the log dir itself", lambda p: commits_of(sparklog.open(store_log(p), "rw")),
     (on_log(commits_of),)),
    ("put the log on a local disk of the driver's host, or open it for reading only",
     lambda p: unsound(p, "rw"), (lambda p: unsound(p, "r"), lambda p: p.opened().close())),
    ("open the log once for writing", lambda p: (raised_start(p), count(p.log)),
     (lambda p: p.opened().close(), holds(3, lambda p: p.log))),
    ("give the directory of a log", lambda p: verify(p.new("none")), (lambda p: verify(p.log),)),
    ("leave out quick=True", lambda p: verify(p.log, quick=True, repair=True),
     (lambda p: verify(p.log, quick=True), lambda p: verify(p.log, repair=True))),
    ("`sparklog topics create` makes a new log)", lambda p: raised(examine(p.new("none"))),
     (cli("topics", "create", "NEW/none", "--topic", "t"),
      lambda p: raised(examine(p.new("none"))))),
]  # fmt: skip

OF_STORES: list[Case] = [
    ("`sparklog serve DIR --remote URL` copies closed segments of a log dir's topics with"
     " remote.storage.enable to a store",
     lambda p: fork(p.log, p.url, time_ms=1 << 50),
     (lambda p: (tiered_topic(p),
                 p.cli("serve", p.log, "--remote", f"file://{p.new('copies')}", "--once")),
      holds(2, lambda p: f"file://{p.new('copies')}", "a"))),
    ("use the URL of a log, which the first writer creates (`sparklog topics create URL`), or a"
     " URL to which segments are copied (`sparklog serve PATH --remote URL`)",
     cli("tier", "verify", "URL"),
     (after(cli("topics", "create", "URL", "--topic", "t"), holds(0, lambda p: p.url)),
      lambda p: count(archive(p), "a"))),
    ("pass the URL to which closed segments are copied (`sparklog serve --remote URL`)",
     lambda p: p.cli("tier", "restore", p.url, p.url + "-new"),
     (lambda p: p.cli("tier", "restore", archive(p), f"file://{p.new('home')}"),)),
    ("use `sparklog fork`", lambda p: restored(store_log(p), p.url + "-new"),
     (lambda p: p.cli("fork", p.url, p.url + "-new", "--time", "2100-01-01T00:00:00Z"),)),
    ("Open the log with option remote.keyring, the file that contains this key",
     lambda p: sparklog.open(sealed_store(p), "rw").append("t", ROW),
     (lambda p: sparklog.open(p.url, "rw", options=keyring(p)).append("t", ROW),)),
    ("pass the key ring that contains key {} (option remote.keyring)",
     lambda p: count(sealed_store(p)),
     (lambda p: count(p.url, options=keyring(p)),)),
    ("pass the key ring to the service (keyring=)",
     lambda p: complain(Service(sealed_store(p), options=MERGED)),
     (lambda p: complain(Service(p.url, keyring=ring(p), options=MERGED)),)),
    ("name at least one partition",
     lambda p: fork(store_log(p), p.url + "-new", offsets={}),
     (lambda p: fork(p.url, p.url + "-new", offsets={"t": {0: 1}}),)),
    ("correct the URL, or, if it is an archive, check its segments by `sparklog tier verify`",
     lambda p: verify(archive(p)), (lambda p: p.cli("tier", "verify", archive(p)),)),
    ("give the URL of a log in a store, or a log's directory", lambda p: collect(archive(p)),
     (lambda p: collect(p.log), lambda p: collect(store_log(p)))),
]  # fmt: skip

OF_TIERS: list[Case] = [
    ("set directory too", lambda p: BlockCache(0, None, 5),
     (lambda p: BlockCache(0, p.new("c"), 5),)),
    ("set option remote.keyring to a key ring that contains the key {}",
     lambda p: count(sealed_archive(p), "a"),
     (lambda p: count(f"file://{p.new('copies')}", "a", options=keyring(p)),)),
    ("If the log had remote storage, name its URL",
     lambda p: (lost_settings(p), p.cli("tier", "rebuild", p.log)),
     (lambda p: p.cli("tier", "rebuild", p.log, "--remote", f"file://{p.new('copies')}"),
      lambda p: p.cli("tier", "verify", p.log, "--deep"))),
    ("`sparklog tier rebuild PATH --remote URL`",
     lambda p: (lost_settings(p), p.cli("tier", "rebuild", p.log)),
     (lambda p: p.cli("tier", "rebuild", p.log, "--remote", f"file://{p.new('copies')}"),
      holds(3, lambda p: p.log, "a"))),
    ("pass them as storage options or by the environment",
     lambda p: Service(p.log, remote="s3://key:secret@bucket/x").run_once(),
     (lambda p: Service(p.log, remote=p.url, storage_options={}).run_once(),)),
]  # fmt: skip

CASES = [*OF_LOG, *OF_DIRECTORIES, *OF_STORES, *OF_TIERS]


@pytest.mark.parametrize(
    ("advice", "refused", "advised"), CASES, ids=[f"{n}: {c[0]}" for n, c in enumerate(CASES)]
)
def test_what_a_refusal_advises_works(
    place: Place, advice: str, refused: Call, advised: tuple[Call, ...]
) -> None:
    arguments.test_what_a_refusal_advises_works(place, advice, refused, advised)


def test_a_damaged_dirs_file_is_written_again_by_an_open_for_writing(place: Place) -> None:
    file = Path(place.log) / "sparklog.dirs"
    before = json.loads(file.read_bytes())
    file.write_bytes(b"x")
    place.opened().close()
    assert json.loads(file.read_bytes()).keys() == before.keys()
    assert count(place.log) == 3
    assert verify(place.log).ok


def test_a_tier_with_a_gap_becomes_a_log_dir_behind_it(place: Place) -> None:
    """Or a log in a store, once the lost objects are back; the refused calls leave nothing."""
    url = with_gap(place)
    target = f"file://{place.new('home')}"
    with pytest.raises(SparklogError, match="no copy holds these offsets") as refusal:
        restored(url, target, topics=["a"])
    assert open_store(target).list() == []
    start = json.dumps({"0": refusal.value.end})
    place.cli("tier", "restore", url, place.new("dir"), "--topic", "a", "--start", start)
    assert count(place.new("dir"), "a") >= 1
    shutil.copytree(place.new("backup"), place.new("copies"), dirs_exist_ok=True)
    restored(url, target, topics=["a"])
    assert count(target, "a") == 5


@pytest.mark.parametrize("asked", [{"offsets": {}}, {"offsets": {"u": {0: 1}}}, {"writer": "w"}])
def test_a_refused_fork_leaves_its_place_to_another(place: Place, asked: dict[str, Any]) -> None:
    url = store_log(place)
    with pytest.raises(SparklogError):
        fork(url, f"{url}-new", **asked)
    assert open_store(f"{url}-new").list() == []
    fork(url, f"{url}-new", offsets={"t": {0: 1}})
    assert count(f"{url}-new") == 1
