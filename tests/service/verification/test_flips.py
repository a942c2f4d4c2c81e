"""Any byte of any file, turned: verify finds it, or the log reads the same."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import SparklogError, UnsupportedVersionError
from sparklog.log import read_retry
from sparklog.service import Severity, verify
from tests import paths
from tests.service.logs import T0, flip, make, records, table

SAMPLE = 150
View = Callable[[Path], object]
BAD = (Severity.DAMAGE, Severity.DIFFERENCE)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers look again for a second before they call it damage; not thousands of times here."""
    monkeypatch.setattr(read_retry, "RETRY_MS", 0)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flips") / "log"
    make(path)
    return path


def everything(path: Path) -> tuple[Any, ...]:
    """What a reader can ask: records, offsets, times; in either mode of opening."""
    with sparklog.open(path) as log:
        spans = {name: log.offsets(name) for name in log.topics()}
        times = [
            log.offsets_for_times(name, T0 + ms) for name in spans for ms in range(0, 30_000, 777)
        ]
        return records(path), spans, times


GOLDEN = paths.GOLDEN / "kafka-4.1" / "logdir"
BROKERS = ("txn-0", "compacted-0", "trimmed-0")


def broker_view(path: Path) -> object:
    """What readers of either isolation see of a broker's log."""
    with sparklog.open(path) as log:
        committed = [log.read(name, isolation="read_committed").read_all() for name in log.topics()]
        return records(path), [rows.to_pylist() for rows in committed]


@pytest.mark.deep
def test_a_sample_of_flips_in_a_brokers_log(tmp_path: Path) -> None:
    for name in BROKERS:
        shutil.copytree(GOLDEN / name, tmp_path / name)
    for file in GOLDEN.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    check(tmp_path, every=False, view=broker_view, sample=40)


def places(path: Path, *, every: bool, sample: int = SAMPLE) -> Iterator[tuple[Path, int, int]]:
    """(file, byte, mask): of all files, or of a sample in which each file counts alike."""
    rng = random.Random(7)
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.stat().st_size)
    if every:
        for file in files:
            for at in range(file.stat().st_size):
                yield file, at, 1 << rng.randrange(8)
        return
    for _ in range(sample):
        file = rng.choice(files)
        yield file, rng.randrange(file.stat().st_size), 1 << rng.randrange(8)


def judge(path: Path, file: Path, at: int, mask: int, view: View, expected: object) -> bool:
    """Turn the bits, verify, turn them back; tell whether it was found."""
    flip(file, at, mask)
    try:
        try:
            report = verify(path, threads=1)
        except UnsupportedVersionError as newer:  # which a flipped version says
            return str(file) in str(newer)
        # A warning counts: a broker's high watermark may lie below its log's end.
        if any(f.severity in (*BAD, Severity.WARNING) for f in report.findings):
            assert all(str(path) in f.file for f in report.findings)
            return True
        where = f"{file} byte {at} mask {mask}: {report}"
        try:
            assert view(path) == expected, where
        except SparklogError as error:
            raise AssertionError(f"{where}: {error}") from error
        return False
    finally:
        flip(file, at, mask)


def check(path: Path, *, every: bool, view: View = everything, sample: int = SAMPLE) -> None:
    expected = view(path)
    found = {True: 0, False: 0}
    for file, at, mask in places(path, every=every, sample=sample):
        found[judge(path, file, at, mask, view, expected)] += 1
    assert found[True] > 2 * found[False], found


@pytest.mark.deep
def test_a_sample_of_flips(template: Path, tmp_path: Path) -> None:
    check(Path(shutil.copytree(template, tmp_path / "log")), every=False)


@pytest.mark.slow
def test_every_byte(template: Path, tmp_path: Path) -> None:
    check(Path(shutil.copytree(template, tmp_path / "log")), every=True)


@pytest.mark.deep
def test_a_sample_of_flips_repaired(template: Path, tmp_path: Path) -> None:
    """What a repair makes of a flip reads the same, or is reported as damage."""
    expected = everything(template)
    rng = random.Random(11)
    repaired = 0
    for number, (file, at, mask) in enumerate(places(template, every=False)):
        if rng.random() > 0.2:
            continue
        path = Path(shutil.copytree(template, tmp_path / str(number)))
        flip(path / file.relative_to(template), at, mask)
        report = verify(path, repair=True, threads=1, clock=ManualClock(T0))
        where = f"{file} byte {at} mask {mask}: {report}"
        bad = [f for f in report.findings if f.severity in BAD and not f.repaired]
        if bad:
            assert all(f.repair is None for f in bad), where
        else:
            # Without a segment below the log start, as after retention, times lead further.
            asked = 2 if "below the log start" in str(report) else 3
            assert everything(path)[:asked] == expected[:asked], where
            with sparklog.open(path, "rw", clock=ManualClock(T0)) as log:
                log.append("u", table("after-1"), partition=0)
            assert verify(path).ok, where
            repaired += 1
        shutil.rmtree(path)
    assert repaired > 8
