"""Damaged files: detected, or harmless. Below the committed end nothing is cut."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator

import pytest

import sparklog
from sparklog.errors import DataCorruptionError, SparklogError, UnsupportedVersionError
from sparklog.format.batch import LOG_OVERHEAD
from sparklog.fs import read_bytes
from sparklog.log import read_retry
from sparklog.testing.crashfs import CrashFS
from tests import depth
from tests.crash.harness import CONFIG, ROOT, TOPIC, World, open_log, table, view_of
from tests.crash.test_protocol import segments, tree

ONE, TWO = (TOPIC, 0), (TOPIC, 1)


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers look again for a second before they call it damage; not thousands of times here."""
    monkeypatch.setattr(read_retry, "RETRY_MS", 0)


def small_world(*, close: bool = True) -> World:
    """Three segments in t-0 with keys, producers and times; closed cleanly."""
    world = World()
    world.open()
    world.run(world.plan_create(TOPIC))
    for number in range(12):
        world.clock.advance(1000)
        world.run(world.plan_append(ONE, 1 + number % 2))
    world.run(world.plan_commit({ONE: 1, TWO: 1}))
    world.run(world.plan_truncate(ONE, 1))
    if close:
        world.run(world.plan_close())
    return world


def bits(fs: CrashFS, path: str, *, step: int = 1) -> Iterator[tuple[int, int]]:
    for bit in range(0, fs.size(path) * 8, step):
        yield bit // 8, bit % 8


def flipped(fs: CrashFS, path: str, at: int, bit: int) -> CrashFS:
    other = fs.kill_clone()
    with other.open(path, write=True) as file:
        file.pwrite(bytes([file.pread(1, at)[0] ^ 1 << bit]), at)
    return other


def times_of(log: sparklog.Log, world: World) -> list[object]:
    now = world.clock()
    return [log.offsets_for_times(TOPIC, when) for when in range(now - 12_000, now + 10, 499)]


def everything(fs: CrashFS, world: World, mode: str) -> object:
    with open_log(fs, world.clock, mode) as log:
        parts = []
        for partition, (start, end) in log.offsets(TOPIC).items():
            for offset in range(start, end):  # from every offset: each uses its index entry
                rows = log.read(
                    TOPIC, [partition], start={partition: offset}, end={partition: offset + 1},
                    columns=["offset", "value", "timestamp", "key"],
                ).read_all()  # fmt: skip
                parts.append(rows.to_pylist())
        return view_of(log), times_of(log, world), parts


def check_flips(
    path: str, world: World, *, mode: str = "r", flips: int | None = depth.FLIPS
) -> tuple[int, int]:
    """Flip bits one by one; return how many were detected and how many harmless."""
    step = 1 if flips is None else 1 + world.fs.size(path) * 8 // flips
    expected = everything(world.fs.kill_clone(), world, mode)
    detected = harmless = 0
    for at, bit in bits(world.fs, path, step=step):
        fs = flipped(world.fs, path, at, bit)
        try:
            found = everything(fs, world, mode)
        except SparklogError as error:
            _check_error(error, path, f"byte {at} bit {bit}")
            detected += 1
            continue
        assert found == expected, f"{path} byte {at} bit {bit}: other data, and no word of it"
        harmless += 1
    return detected, harmless


def _check_error(error: SparklogError, path: str, where: str) -> None:
    noticed = DataCorruptionError | UnsupportedVersionError  # a flip may hit the version itself
    assert isinstance(error, noticed), f"{path} {where}: {error!r}"
    assert path.rpartition("/")[0] in str(error)


@pytest.mark.parametrize("which", [0, -1], ids=["closed", "active"])
def test_every_bit_of_a_segment(which: int) -> None:
    world = small_world()
    path = segments(world.fs)[which]
    detected, harmless = check_flips(path, world)
    assert detected > 0.8 * depth.FLIPS
    # The leader epoch isn't under the CRC, and no reader needs it.
    assert harmless <= 0.1 * depth.FLIPS


def test_every_bit_of_a_base_offset() -> None:
    """No CRC covers it: only its place among the others tells."""
    world = small_world()
    path = segments(world.fs)[1]
    expected = everything(world.fs.kill_clone(), world, "r")
    second = LOG_OVERHEAD + int.from_bytes(read_bytes(world.fs, path)[8:LOG_OVERHEAD], "big")
    for at, bit in ((second + n // 8, n % 8) for n in range(64)):
        try:
            found = everything(flipped(world.fs, path, at, bit), world, "r")
        except DataCorruptionError as error:
            _check_error(error, path, f"byte {at} bit {bit}")
        else:
            assert found == expected, f"byte {at} bit {bit}: other data, and no word of it"


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("which", [0, -1], ids=["closed", "active"])
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_every_bit_of_an_index(suffix: str, which: int, mode: str) -> None:
    """An index is a hint: whatever is in it, look-ups give the same."""
    world = small_world()
    path = segments(world.fs)[which].removesuffix("log") + suffix
    assert world.fs.size(path) > 0
    detected, harmless = check_flips(path, world, mode=mode)
    assert (detected, harmless > 0) == (0, True)


FILES = (
    "sparklog.watermarks", "sparklog.topics", "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown",
    "sparklog.lock", f"{TOPIC}-0/leader-epoch-checkpoint", f"{TOPIC}-0/partition.metadata",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_every_bit_of_a_small_file(name: str, mode: str) -> None:
    world = small_world()
    path = f"{ROOT}/{name}"
    detected, harmless = check_flips(path, world, mode=mode)
    assert detected + harmless > 0


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.usefixtures("impatient")
def test_every_bit_of_the_ledger(mode: str) -> None:
    """With the watermarks gone, too, readers depend on it; writers always do."""
    world = small_world(close=mode == "rw")
    if mode == "r":
        world.fs.unlink(f"{ROOT}/sparklog.watermarks")
    path = segments(world.fs, topic="__sparklog_commits")[-1]
    detected, _ = check_flips(path, world, mode=mode)
    assert detected > depth.FLIPS // 2


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["log", "index", "timeindex"])
def test_every_single_bit(suffix: str) -> None:
    world = small_world()
    for path in segments(world.fs):
        detected, harmless = check_flips(path.removesuffix("log") + suffix, world, flips=None)
        assert detected + harmless == world.fs.size(path.removesuffix("log") + suffix) * 8


def test_every_bit_of_a_snapshot() -> None:
    """A producer's last batch is still recognised, or the damage is noticed; never forgotten."""
    world = small_world(close=False)
    rows = table([b"idempotent"])
    first = world.opened.append(TOPIC, rows, partition=1, producer=(7, 0, 0))
    world.opened.close()
    names = [n for n in world.fs.listdir(f"{ROOT}/{TOPIC}-1") if n.endswith(".snapshot")]
    path = f"{ROOT}/{TOPIC}-1/{names[-1]}"
    assert world.fs.size(path) > 50
    for at, bit in bits(world.fs, path, step=3):
        fs = flipped(world.fs, path, at, bit)
        with open_log(fs, world.clock) as log:
            try:
                again = log.append(TOPIC, rows, partition=1, producer=(7, 0, 0))
            except DataCorruptionError:
                continue
            assert again == first, f"byte {at} bit {bit}: the append was made twice"


# -- whole files ---------------------------------------------------------------------------------

Damage = Callable[[CrashFS, str], None]


def _cut(fs: CrashFS, path: str) -> None:
    with fs.open(path, write=True) as file:
        file.truncate(file.size() * 2 // 3)


def _empty(fs: CrashFS, path: str) -> None:
    with fs.open(path, write=True) as file:
        file.truncate(0)


def _zeros(fs: CrashFS, path: str) -> None:
    with fs.open(path, write=True) as file:
        file.pwrite(bytes(file.size()), 0)


def _foreign(fs: CrashFS, path: str) -> None:
    with fs.open(path, write=True) as file:
        file.pwrite(random.Random(zlib.crc32(path.encode())).randbytes(file.size()), 0)


def _missing(fs: CrashFS, path: str) -> None:
    fs.unlink(path)


DAMAGES: dict[str, Damage] = {
    "cut": _cut, "empty": _empty, "zeros": _zeros, "foreign": _foreign, "missing": _missing,
}  # fmt: skip


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "active"])
@pytest.mark.parametrize("unclean", [False, True], ids=["closed", "crashed"])
def test_a_damaged_segment_below_the_end(how: str, which: int, unclean: bool) -> None:
    """DataCorruptionError with file, position and range; nothing that is left is cut."""
    world = small_world(close=not unclean)
    fs = world.fs.crash_clone(mode="all") if unclean else world.fs.kill_clone()
    path = segments(fs)[which]
    if (how, which, unclean) == ("missing", 0, False):
        pytest.skip("after a clean close a broker may have deleted it: retention")
    DAMAGES[how](fs, path)
    before = {n: d for n, d in tree(fs).items() if n.startswith(f"{ROOT}/t-") and "log" in n}
    with pytest.raises(DataCorruptionError) as caught, open_log(fs, world.clock, "r") as log:
        view_of(log)
    _check_place(caught.value, path, world)
    with open_log(fs, world.clock) as log:
        with pytest.raises(DataCorruptionError) as caught:
            view_of(log)
        _check_place(caught.value, path, world)
        log.append(TOPIC, table([b"x"]), partition=1)  # the others go on
    after = tree(fs)
    for name, data in before.items():
        if f"/{TOPIC}-0/" in name and name.endswith(".log"):
            assert after[name] == data, f"{name} was changed"


def _check_place(error: DataCorruptionError, path: str, world: World) -> None:
    part = world.model.parts[ONE]
    assert error.path == path or error.path == path.rpartition("/")[0]
    assert error.first is not None
    assert error.end is not None
    assert 0 <= error.first < error.end <= part.end
    if error.path == path:
        assert error.position is not None or error.path.endswith("/t-0")


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("suffix", ["index", "timeindex", "snapshot"])
@pytest.mark.parametrize("unclean", [False, True], ids=["closed", "crashed"])
def test_damaged_helpers_are_rebuilt(how: str, suffix: str, unclean: bool) -> None:
    world = small_world(close=not unclean)
    fs = world.fs.crash_clone(mode="all") if unclean else world.fs.kill_clone()
    directory = f"{ROOT}/{TOPIC}-0"
    names = [n for n in fs.listdir(directory) if n.endswith(f".{suffix}")]
    expected = everything(fs.kill_clone(), world, "r")
    for name in names:
        DAMAGES[how](fs, f"{directory}/{name}")
    assert everything(fs.kill_clone(), world, "r") == expected
    assert everything(fs, world, "rw") == expected
    with open_log(fs, world.clock) as log:
        log.append(TOPIC, table([b"x"]), partition=0)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_damaged_small_files(how: str, name: str) -> None:
    """Recovered or refused; never other data."""
    for unclean in (False, True):
        world = small_world(close=not unclean)
        fs = world.fs.crash_clone(mode="all") if unclean else world.fs.kill_clone()
        path = f"{ROOT}/{name}"
        if not fs.exists(path) or (not fs.size(path) and how != "missing"):
            continue
        expected = world.model.view()
        DAMAGES[how](fs, path)
        for mode in ("r", "rw"):
            try:
                with open_log(fs.kill_clone(), world.clock, mode) as log:
                    assert view_of(log) == expected
            except DataCorruptionError as error:
                assert path in str(error)  # noqa: PT017


ABOVE: dict[str, Callable[[CrashFS, str, int], None]] = {}


def above(name: str) -> Callable[[Callable[[CrashFS, str, int], None]], None]:
    def note(make: Callable[[CrashFS, str, int], None]) -> None:
        ABOVE[name] = make

    return note


def _put(fs: CrashFS, path: str, data: bytes, *, append: bool = False) -> None:
    with fs.open(path, create=True) as file:
        file.pwrite(data, file.size() if append else 0)
        file.sync()


@above("zero tail")
def _zero_tail(fs: CrashFS, directory: str, end: int) -> None:
    _put(fs, segments(fs)[-1], bytes(3000), append=True)


@above("torn tail")
def _torn_tail(fs: CrashFS, directory: str, end: int) -> None:
    raw = read_bytes(fs, segments(fs)[0])
    _put(fs, segments(fs)[-1], end.to_bytes(8, "big") + raw[8:50], append=True)


@above("foreign tail")
def _foreign_tail(fs: CrashFS, directory: str, end: int) -> None:
    _put(fs, segments(fs)[-1], random.Random(5).randbytes(700), append=True)


@above("empty segment past the end")
def _empty_segment(fs: CrashFS, directory: str, end: int) -> None:
    _put(fs, f"{directory}/{end + 5:020}.log", b"")


@above("zero-filled segment at the end")
def _zero_segment(fs: CrashFS, directory: str, end: int) -> None:
    _put(fs, f"{directory}/{end:020}.log", bytes(900))


@above("segment with records past the end")
def _later_segment(fs: CrashFS, directory: str, end: int) -> None:
    raw = bytearray(read_bytes(fs, segments(fs)[0]))
    raw[0:8] = (end + 2).to_bytes(8, "big")
    _put(fs, f"{directory}/{end + 2:020}.log", bytes(raw))


@above("indexes without a log")
def _orphans(fs: CrashFS, directory: str, end: int) -> None:
    _put(fs, f"{directory}/{end + 3:020}.index", b"\1" * 80)
    _put(fs, f"{directory}/{end + 3:020}.timeindex", b"\1" * 120)
    _put(fs, f"{directory}/{end + 3:020}.snapshot", b"\1" * 30)


@above("foreign files")
def _foreign_files(fs: CrashFS, directory: str, end: int) -> None:
    _put(fs, f"{directory}/notes.txt", b"hello")
    _put(fs, f"{directory}/{end:020}.log.deleted", b"old")
    _put(fs, f"{directory}/leader-epoch-checkpoint.tmp", b"half")
    _put(fs, f"{ROOT}/somebody.tmp", b"")


@above("index entries past the end")
def _index_tail(fs: CrashFS, directory: str, end: int) -> None:
    stem = segments(fs)[-1].removesuffix("log")
    _put(fs, stem + "index", (500).to_bytes(4, "big") + (100_000).to_bytes(4, "big"), append=True)
    _put(fs, stem + "timeindex", bytes(7) + b"\x7f" + (500).to_bytes(4, "big"), append=True)


@pytest.mark.parametrize("what", ABOVE)
@pytest.mark.parametrize("boot", ["same", "next"])
def test_rubbish_above_the_end(what: str, boot: str) -> None:
    """Readers don't see it, recovery removes it, the next append is right behind the last."""
    world = small_world(close=False)
    part = world.model.parts[ONE]
    fs = world.fs.kill_clone() if boot == "same" else world.fs.crash_clone(mode="all")
    ABOVE[what](fs, f"{ROOT}/{TOPIC}-0", part.end)
    with open_log(fs.kill_clone(), world.clock, "r") as reader:
        assert view_of(reader) == world.model.view()
    with open_log(fs, world.clock) as log:
        assert view_of(log) == world.model.view()
        log.append(TOPIC, table([b"next"]), partition=0)
        after = world.model.with_values({ONE: [b"next"]}).view()
        assert view_of(log) == after
    with open_log(fs.crash_clone(mode="strict"), world.clock) as log:
        assert view_of(log) == after


def test_the_config_of_these_tests_makes_many_segments() -> None:
    world = small_world()
    assert len(segments(world.fs)) >= 3
    assert CONFIG["internal.segment.bytes"]
