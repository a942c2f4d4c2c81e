"""CrashFS keeps what was synced, and may lose or tear everything else."""

import random
from collections.abc import Callable

import pytest

from sparklog.errors import StorageUnavailableError
from sparklog.fs import read_bytes, write_durably
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call, Fault, SimulatedKill, format_trace


def put(fs: CrashFS, path: str, data: bytes, *, at: int = 0, sync: bool = False) -> None:
    with fs.open(path, create=True) as file:
        file.pwrite(data, at)
        if sync:
            file.sync()


def outcomes(fs: CrashFS, look: Callable[[CrashFS], object], seeds: int = 300) -> set[object]:
    return {look(fs.crash_clone(random.Random(seed))) for seed in range(seeds)}


def content(path: str) -> Callable[[CrashFS], bytes | None]:
    return lambda fs: read_bytes(fs, path) if fs.exists(path) else None


@pytest.fixture
def fs() -> CrashFS:
    fs = CrashFS()
    fs.mkdir("/d")
    fs.sync_dir("/")
    return fs


def durable(fs: CrashFS, path: str, data: bytes) -> None:
    put(fs, path, data, sync=True)
    fs.sync_dir("/d")


def test_strict_keeps_what_was_synced_and_no_more(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"kept")
    put(fs, "/d/a", b"lost", at=4)
    put(fs, "/d/b", b"no name", sync=True)
    after = fs.crash_clone(mode="strict")
    assert after.listdir("/d") == ["a"]
    assert read_bytes(after, "/d/a") == b"kept"
    assert after.boot_id() != fs.boot_id()


def test_all_keeps_everything(fs: CrashFS) -> None:
    put(fs, "/d/a", b"x" * 2000)
    after = fs.crash_clone(mode="all")
    assert read_bytes(after, "/d/a") == b"x" * 2000
    assert read_bytes(after.crash_clone(mode="strict"), "/d/a") == b"x" * 2000


def test_unsynced_writes_survive_each_by_itself(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"..")
    put(fs, "/d/a", b"A")
    put(fs, "/d/a", b"B", at=1)
    assert outcomes(fs, content("/d/a")) == {b"..", b"A.", b".B", b"AB"}


def test_a_write_is_torn_between_sectors(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"." * 1200)
    put(fs, "/d/a", b"X" * 1000, at=100)
    for image in outcomes(fs, content("/d/a")):
        assert isinstance(image, bytes)
        assert len(image) == 1200
        sectors = [image[100:512], image[512:1024], image[1024:1100]]
        assert all(len(set(sector)) == 1 for sector in sectors)
    found = outcomes(fs, content("/d/a"))
    shapes = {bytes((i[100], i[512], i[1099])) for i in found}  # type: ignore[index]
    assert {b"X..", b"..X", b".X.", b"XXX", b"..."} <= shapes


def test_size_and_data_survive_independently(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"base")
    put(fs, "/d/a", b"tail", at=4)
    assert outcomes(fs, content("/d/a")) == {b"base", b"base\0\0\0\0", b"basetail"}


def test_a_later_write_without_the_earlier_leaves_a_hole(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"")
    put(fs, "/d/a", b"one")
    put(fs, "/d/a", b"two", at=3)
    assert b"\0\0\0two" in outcomes(fs, content("/d/a"))


def test_truncate_may_be_lost(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"abcdef")
    with fs.open("/d/a", write=True) as file:
        file.truncate(2)
    seen = outcomes(fs, content("/d/a"))
    assert {b"abcdef", b"ab", b"ab\0\0\0\0"} == seen
    with fs.open("/d/a", write=True) as file:
        file.sync()
    assert outcomes(fs, content("/d/a")) == {b"ab"}


def test_a_new_name_needs_sync_dir(fs: CrashFS) -> None:
    put(fs, "/d/a", b"x", sync=True)
    assert outcomes(fs, content("/d/a")) == {None, b"x"}
    fs.sync_dir("/d")
    assert outcomes(fs, content("/d/a")) == {b"x"}


def test_sync_dir_does_not_sync_contents(fs: CrashFS) -> None:
    put(fs, "/d/a", b"x")
    fs.sync_dir("/d")
    assert outcomes(fs, content("/d/a")) == {b"", b"\0", b"x"}


def test_an_unlink_may_be_lost(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"old")
    fs.unlink("/d/a")
    assert outcomes(fs, content("/d/a")) == {None, b"old"}
    put(fs, "/d/a", b"new", sync=True)
    assert outcomes(fs, content("/d/a")) == {None, b"old", b"new"}
    fs.sync_dir("/d")
    assert outcomes(fs, content("/d/a")) == {b"new"}


def test_rename_over_a_name_is_old_or_new_never_neither(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"old")
    put(fs, "/d/t", b"new", sync=True)
    fs.sync_dir("/d")
    fs.rename("/d/t", "/d/a")
    seen = outcomes(fs, lambda after: (content("/d/a")(after), content("/d/t")(after)))
    assert seen == {(b"old", b"new"), (b"new", None), (b"new", b"new")}


def test_an_unsynced_file_renamed_into_place_may_be_empty(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"old")
    put(fs, "/d/t", b"new")
    fs.rename("/d/t", "/d/a")
    assert outcomes(fs, content("/d/a")) == {b"old", b"", b"\0\0\0", b"new"}


def test_a_chain_of_renames_never_loses_the_file(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"x")
    fs.mkdir("/e")
    fs.sync_dir("/")
    fs.rename("/d/a", "/d/b")
    fs.rename("/d/b", "/e/c")
    paths = ("/d/a", "/d/b", "/e/c")
    seen = outcomes(fs, lambda after: tuple(path for path in paths if after.exists(path)))
    assert () not in seen
    assert {("/d/a",), ("/d/b",), ("/e/c",)} <= seen
    fs.sync_dir("/d")  # its removal from /d takes its coming into /e along
    assert outcomes(fs, lambda after: after.exists("/e/c")) == {True}


def test_directories_are_names_too(fs: CrashFS) -> None:
    fs.mkdir("/d/sub")
    put(fs, "/d/sub/a", b"x", sync=True)
    fs.sync_dir("/d/sub")
    assert outcomes(fs, content("/d/sub/a")) == {None, b"x"}
    fs.sync_dir("/d")
    assert outcomes(fs, content("/d/sub/a")) == {b"x"}


def test_hard_links_stay_one_file(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"x")
    fs.link("/d/a", "/d/b")
    fs.sync_dir("/d")
    put(fs, "/d/a", b"y")
    for after in (fs.crash_clone(mode="all"), fs.kill_clone()):
        assert after.identity("/d/a") == after.identity("/d/b")
        put(after, "/d/a", b"z")
        assert read_bytes(after, "/d/b") == b"z"


def test_a_failed_sync_is_never_made_good_by_another(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"....")
    with fs.open("/d/a", write=True) as file:
        file.pwrite(b"LOST", 0)
        fs.fail_at(1, Fault.IO_ERROR, ops={"sync"})
        with pytest.raises(StorageUnavailableError, match="can't sync /d/a"):
            file.sync()
        file.sync()
        assert file.pread(4, 0) == b"LOST"
        assert read_bytes(fs.crash_clone(mode="strict"), "/d/a") == b"...."
        assert outcomes(fs, content("/d/a")) == {b"....", b"LOST"}
        file.pwrite(b"KEPT", 0)
        file.sync()
    assert outcomes(fs, content("/d/a")) == {b"KEPT"}


def test_kill_keeps_the_page_cache_and_frees_the_locks(fs: CrashFS) -> None:
    lock = fs.open_lock("/d/lock")
    assert lock.try_lock(0, 0, exclusive=True)
    put(fs, "/d/a", b"cached")
    other = fs.process()
    assert not other.open_lock("/d/lock").try_lock(0, 1, exclusive=False)
    fs.kill()
    assert other.open_lock("/d/lock").try_lock(0, 1, exclusive=True)
    assert read_bytes(other, "/d/a") == b"cached"
    assert other.boot_id() == fs.boot_id()
    with pytest.raises(SimulatedKill):
        put(fs, "/d/a", b"from the grave")
    with pytest.raises(SimulatedKill):
        fs.listdir("/d")


def test_kill_clone_leaves_the_original_alone(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"x")
    put(fs, "/d/a", b"cached")
    lock = fs.open_lock("/d/lock")
    assert lock.try_lock(0, 0, exclusive=True)
    clone = fs.kill_clone()
    assert read_bytes(clone, "/d/a") == b"cached"
    assert clone.open_lock("/d/lock").try_lock(0, 0, exclusive=True)
    assert read_bytes(clone.crash_clone(mode="strict"), "/d/a") == b"x"
    put(clone, "/d/a", b"other!")
    assert read_bytes(fs, "/d/a") == b"cached"


def test_fail_at_kills_before_the_nth_call(fs: CrashFS) -> None:
    fs.fail_at(3, Fault.KILL)
    with pytest.raises(SimulatedKill):
        put(fs, "/d/a", b"x", sync=True)
    assert [call.op for call in fs.calls[-3:]] == ["create", "pwrite", "sync"]
    assert fs.dead
    assert read_bytes(fs.process(), "/d/a") == b"x"
    assert "sync /d/a" in format_trace(fs.calls)


def test_a_kill_tears_a_write_between_pages_only(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"." * 9000)
    torn = fs.process()
    torn.fail_at(1, Fault.TORN_KILL)
    with pytest.raises(SimulatedKill):
        put(torn, "/d/a", b"X" * 8000, at=500)
    assert read_bytes(fs, "/d/a") == b"." * 500 + b"X" * 3596 + b"." * 4904
    whole = fs.process()
    whole.fail_at(1, Fault.TORN_KILL)
    with pytest.raises(SimulatedKill):
        put(whole, "/d/b", b"X" * 400)
    assert read_bytes(fs, "/d/b") == b""


def test_kill_clone_torn_equals_a_torn_kill(fs: CrashFS) -> None:
    clones: list[CrashFS] = []

    def look(call: Call) -> None:
        if call.op == "pwrite":
            clones.append(fs.kill_clone(call))

    fs.on_call = look
    put(fs, "/d/a", b"X" * 9000)
    assert read_bytes(clones[0], "/d/a") == b"X" * 4096
    assert read_bytes(fs, "/d/a") == b"X" * 9000


def test_disk_full_does_a_part_and_says_so(fs: CrashFS) -> None:
    fs.fail_at(1, Fault.NO_SPACE, ops={"pwrite"}, times=100)
    with pytest.raises(StorageUnavailableError, match=r"write /d/a: No space left"):
        put(fs, "/d/a", b"X" * 9000)
    assert fs.size("/d/a") == 4096
    fs.rename("/d/a", "/d/b")
    fs.unlink("/d/b")
    fs.heal()
    put(fs, "/d/a", b"fits")


def test_denied_does_nothing(fs: CrashFS) -> None:
    fs.fail_at(1, Fault.DENIED, when=lambda call: call.path == "/d/a")
    with pytest.raises(StorageUnavailableError, match="Permission denied"):
        put(fs, "/d/a", b"x")
    assert not fs.exists("/d/a")


def test_only_changes_are_counted(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"x")
    before = len(fs.calls)
    put(fs, "/d/a", b"y")
    read_bytes(fs, "/d/a")
    with pytest.raises(FileNotFoundError):
        fs.unlink("/d/none")
    with pytest.raises(FileExistsError):
        fs.mkdir("/d")
    assert len(fs.calls) == before + 1


def test_cutting_a_mapped_file_is_caught(fs: CrashFS) -> None:
    durable(fs, "/d/a", b"mapped")
    mapping = fs.map("/d/a")
    with fs.open("/d/a", write=True) as file:
        with pytest.raises(AssertionError, match="SIGBUS"):
            file.truncate(3)
        mapping.close()
        file.truncate(3)


def test_a_reopening_file_follows_its_path() -> None:
    fs = CrashFS(reopen=True)
    file = fs.open("/a", create=True)
    fs.rename("/a", "/b")
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)


def test_write_durably_is_atomic_at_every_call() -> None:
    for number in range(1, 7):
        for seed in range(40):
            fs = CrashFS()
            write_durably(fs, "/a", b"old contents")
            fs.fail_at(number, Fault.KILL)
            finished = False
            try:
                write_durably(fs, "/a", b"new")
                finished = True
            except SimulatedKill:
                pass
            after = fs.crash_clone(random.Random(seed))
            found = read_bytes(after, "/a")
            assert found == b"new" if finished else found in (b"old contents", b"new")


@pytest.mark.parametrize("seed", range(30))
def test_the_bounds_hold_for_random_histories(seed: int) -> None:
    """Synced and untouched since: kept. Never written: never seen."""
    rng = random.Random(seed)
    fs = CrashFS()
    model: dict[str, bytes] = {}
    seen: dict[str, set[bytes]] = {}
    for step in range(60):
        path = f"/{rng.choice('abc')}"
        data = f"{path}{step}".encode()
        write_durably(fs, path, data, sync_dir=False)
        seen.setdefault(path, set()).add(data)
        if rng.random() < 0.3:
            fs.sync_dir("/")
            model = {name: read_bytes(fs, f"/{name}") for name in fs.listdir("/")}
            seen = {f"/{name}": {value} for name, value in model.items()}
        after = fs.crash_clone(rng)
        for name in model:
            assert read_bytes(after, f"/{name}") in seen[f"/{name}"]
        again = fs.kill_clone().crash_clone(random.Random(step), "all")
        assert read_bytes(again, path) == data


def test_an_exchange_survives_whole_or_not_at_all(fs: CrashFS) -> None:
    for name in "ab":
        durable(fs, f"/d/{name}", name.encode())
    fs.exchange("/d/a", "/d/b")

    def look(after: CrashFS) -> tuple[bytes | None, ...]:
        return content("/d/a")(after), content("/d/b")(after)  # type: ignore[return-value]

    assert outcomes(fs, look) == {(b"a", b"b"), (b"b", b"a")}
    fs.sync_dir("/d")
    assert outcomes(fs, look) == {(b"b", b"a")}


def test_an_exchange_between_directories(fs: CrashFS) -> None:
    fs.mkdir("/e")
    fs.sync_dir("/")
    durable(fs, "/d/a", b"a")
    put(fs, "/e/b", b"b", sync=True)
    fs.sync_dir("/e")
    fs.exchange("/d/a", "/e/b")
    after = fs.kill_clone()
    for machine in (fs, after):
        machine.sync_dir("/e")
        cut = machine.crash_clone(mode="strict")
        assert (content("/d/a")(cut), content("/e/b")(cut)) == (b"b", b"a")
