"""A log dir that is replaced under a living session or reader: nothing old, nothing in silence."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import InvalidRequestError, LogReplacedError, SparklogError
from sparklog.fs import LOCAL
from sparklog.log.commit import Identity
from sparklog.logdir.broker_lockout import is_marked_open
from sparklog.logdir.log_dir_identity import LogDirIdentity


def table(*values: str) -> pa.Table:
    return pa.table({"value": list(values)})


def values(log: sparklog.Log, topic: str = "t") -> list[str]:
    found = log.read(topic, columns=["value"]).read_all().column("value").to_pylist()
    return [value.decode() for value in found]


def read(path: Path) -> list[str]:
    with sparklog.open(path) as log:
        return values(log)


def replace(path: Path, copy: Path) -> None:
    """As `rm -rf path; cp -a copy path`."""
    shutil.rmtree(path)
    shutil.copytree(copy, path)


def move_over(path: Path, copy: Path) -> None:
    path.rename(path.with_name("gone"))
    copy.rename(path)


def relink(path: Path, copy: Path) -> None:
    path.rename(path.with_name("first"))
    path.symlink_to(copy)


def refill(path: Path, copy: Path) -> None:
    """The directory itself stays, as a mount point does."""
    for entry in list(path.iterdir()):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.copytree(copy, path, dirs_exist_ok=True)


WAYS = pytest.mark.parametrize("way", [replace, move_over, relink, refill])
Way = Callable[[Path, Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def log(path: Path) -> Iterator[sparklog.Log]:
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", table("a", "b"))
        yield log


def other(path: Path, *rows: str) -> Path:
    """A log at another place, with the same topic name."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        for row in rows:
            log.append("t", table(row))
    return path


# --- writers ---------------------------------------------------------------------------------


@WAYS
def test_a_session_goes_on_in_a_copy_with_guard_and_locks(
    log: sparklog.Log, path: Path, tmp_path: Path, way: Way
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    shutil.rmtree(copy / "sparklog_open")  # as after a clean close
    way(path, copy)
    log.append("t", table("c"))
    assert is_marked_open(LOCAL, str(path))
    assert LOCAL.is_locked(str(path / ".lock"), 0, 1)
    assert not (path / ".kafka_cleanshutdown").exists()
    assert read(path) == values(log) == ["a", "b", "c"]
    log.close()
    assert not is_marked_open(LOCAL, str(path))
    assert read(path) == ["a", "b", "c"]


def test_a_copy_that_was_closed_and_written_since(
    log: sparklog.Log, path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    with sparklog.open(copy, "rw") as elsewhere:
        elsewhere.append("t", table("c"))
    replace(path, copy)
    log.append("t", table("d"))
    assert read(path) == ["a", "b", "c", "d"]


@WAYS
def test_an_earlier_state_is_refused(
    log: sparklog.Log, path: Path, tmp_path: Path, way: Way
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    log.append("t", table("lost"))
    way(path, copy)
    for _ in range(2):
        with pytest.raises(LogReplacedError, match=r"the last 1 changes.*open it again"):
            log.append("t", table("c"))
    log.close()  # says nothing, does nothing
    with sparklog.open(path, "rw") as again:
        again.append("t", table("d"))
    assert read(path) == ["a", "b", "d"]
    assert not is_marked_open(LOCAL, str(path)), "the old session still counts as one"


def test_another_history_of_the_same_length_is_refused(
    log: sparklog.Log, path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    with sparklog.open(copy, "rw") as elsewhere:
        elsewhere.append("t", table("x", "y"))
        elsewhere.append("t", table("z"))
    log.append("t", table("lost"))
    replace(path, copy)
    with pytest.raises(LogReplacedError, match="a copy with other records"):
        log.append("t", table("c"))
    assert read(path) == ["a", "b", "x", "y", "z"]


def test_another_log_is_refused(log: sparklog.Log, path: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    path.rename(away)
    shutil.copytree(other(tmp_path / "other", "x", "y", "z"), path)
    with pytest.raises(LogReplacedError, match=r"another log.*Bring back the old contents"):
        log.append("t", table("c"))
    assert read(path) == ["x", "y", "z"]
    path.rename(tmp_path / "theirs")
    away.rename(path)  # brought back
    log.close()
    with sparklog.open(path, "rw") as again:
        again.append("t", table("c"))
    assert read(path) == ["a", "b", "c"]


@pytest.mark.parametrize("empty", [False, True], ids=["gone", "empty"])
def test_a_removed_log_is_not_made_again(
    log: sparklog.Log, path: Path, tmp_path: Path, empty: bool
) -> None:
    """An empty directory may be where a disk is to be mounted."""
    away = tmp_path / "away"
    path.rename(away)
    if empty:
        path.mkdir()
    for _ in range(2):
        with pytest.raises(LogReplacedError, match=r"no longer contains a log.*unmounted"):
            log.append("t", table("c"))
    if empty:
        assert os.listdir(path) == []
        path.rmdir()
    away.rename(path)  # mounted again
    log.append("t", table("c"))
    assert read(path) == ["a", "b", "c"]


def test_a_removed_log_is_closed_without_an_error(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        shutil.rmtree(path)
    assert "no longer contains a log" in caplog.text
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")


def test_threads_share_what_became_of_it(log: sparklog.Log, path: Path, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    with ThreadPoolExecutor(4) as pool:
        before = [pool.submit(log.append, "t", table(f"b{n}")) for n in range(8)]
        [one.result() for one in before]
        shutil.rmtree(copy)
        shutil.copytree(path, copy)
        replace(path, copy)
        after = [pool.submit(log.append, "t", table(f"a{n}")) for n in range(8)]
        [one.result() for one in after]
    assert sorted(read(path)) == sorted(
        ["a", "b", *(f"b{n}" for n in range(8)), *(f"a{n}" for n in range(8))]
    )


def test_the_second_log_dir_is_replaced(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with sparklog.open(f"{one},{two}", "rw") as log:
        log.create_topic("t", 2)
        log.append("t", table("a"), partition=0)
        log.append("t", table("b"), partition=1)
        shutil.copytree(two, tmp_path / "copy")
        replace(two, tmp_path / "copy")
        assert sorted(values(log)) == ["a", "b"]
        log.append("t", table("c"), partition=1)
        assert LOCAL.is_locked(str(two / ".lock"), 0, 1)
    with sparklog.open(f"{one},{two}") as log:
        assert sorted(values(log)) == ["a", "b", "c"]


def test_an_earlier_state_of_the_second_log_dir_is_offline(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with sparklog.open(f"{one},{two}", "rw") as log:
        log.create_topic("t", 2)
        shutil.copytree(two, tmp_path / "copy")
        log.append("t", table("b"), partition=1)
        replace(two, tmp_path / "copy")
        log.append("t", table("a"), partition=0)
        with pytest.raises(SparklogError, match=r"t-1"):
            log.append("t", table("c"), partition=1)


def test_an_identity_is_not_forgotten(log: sparklog.Log, path: Path, tmp_path: Path) -> None:
    """What was committed in the copy's time is a replay there, too."""
    identity = Identity(writer="w", batch=0, fingerprint="f")
    log.commit([], identity=identity)
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    replace(path, copy)
    assert log.commit([], identity=identity).replayed


def test_rows_that_an_earlier_state_lacks_are_told(
    log: sparklog.Log, path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The query that is started again after a restore goes on behind what was lost."""

    def commit(log: sparklog.Log, batch: int) -> None:
        log.commit([], identity=Identity(writer="w", batch=batch, fingerprint=str(batch)))

    for batch in (5, 6, 7):  # the first of a writer may be any, as with a new sink
        commit(log, batch)
    shutil.copytree(path, tmp_path / "copy")
    commit(log, 8)
    log.close()
    assert "micro-batch" not in caplog.text
    replace(path, tmp_path / "copy")
    with sparklog.open(path, "rw") as again:
        for batch in (9, 10, 12):
            commit(again, batch)
    (told,) = [r.getMessage() for r in caplog.records if "micro-batch" in r.getMessage()]
    assert "continues with micro-batch 9, but its last batch in this log is 7" in told


# --- readers ---------------------------------------------------------------------------------


@WAYS
def test_a_reader_sees_what_is_there_now(
    log: sparklog.Log, path: Path, tmp_path: Path, way: Way
) -> None:
    """The copy keeps the topic id, so that alone tells nothing."""
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    with sparklog.open(copy, "rw") as elsewhere:
        elsewhere.append("t", table("theirs"))
    log.append("t", table("ours"))
    with sparklog.open(path) as reader:
        assert values(reader) == ["a", "b", "ours"]
        way(path, copy)
        assert values(reader) == ["a", "b", "theirs"]


def test_the_inode_is_not_given_to_another_file(path: Path, tmp_path: Path) -> None:
    """ext4 gives the inode of a removed file to the next one that is made."""
    for _ in range(3):
        other(path, "a")
        seen = LogDirIdentity(LOCAL, [str(path)])
        shutil.rmtree(path)
        other(path, "b")
        assert not seen.is_current()
        shutil.rmtree(path)


def test_a_read_that_is_under_way_doesnt_mix(log: sparklog.Log, path: Path, tmp_path: Path) -> None:
    log.alter_topic("t", 2)
    log.append("t", table("c"), partition=1)
    shutil.copytree(path, tmp_path / "copy")
    with sparklog.open(path) as reader:
        batches = reader.read("t", columns=["value"])
        next(batches)
        replace(path, tmp_path / "copy")
        with pytest.raises(LogReplacedError, match="start over"):
            next(batches)
        found = reader.read("t", columns=["value"], follow=True)
        next(found)
        replace(path, other(tmp_path / "other", "x", "y"))
        with pytest.raises(LogReplacedError, match="start over"):
            for _ in found:
                pass
        assert values(reader) == ["x", "y"]


def test_followed_and_removed(log: sparklog.Log, path: Path) -> None:
    with sparklog.open(path) as reader:
        found = reader.read("t", follow=True)
        next(found)
        shutil.rmtree(path)
        with pytest.raises(SparklogError, match="does not exist"):
            next(found)


def test_brokers_that_come_and_go_replace_nothing(tmp_path: Path) -> None:
    """They make .lock anew at each start; and sparklog.lock appears when we open their log."""
    (tmp_path / "log").mkdir()
    seen = LogDirIdentity(LOCAL, [str(tmp_path / "log"), str(tmp_path / "log")])
    (tmp_path / "log" / ".lock").touch()
    (tmp_path / "log" / "sparklog.lock").touch()
    assert seen.is_current()
    with pytest.raises(InvalidRequestError):
        sparklog.open(tmp_path / "nowhere")
