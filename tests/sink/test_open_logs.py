"""One log is one log, however its path is spelled; what became of it is looked at on each use."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import (
    InvalidRequestError,
    LogLockedError,
    LogReplacedError,
    StorageUnavailableError,
)
from sparklog.fs import LOCAL
from sparklog.log.log import home_of
from sparklog.logdir.broker_lockout import is_marked_open
from sparklog.logdir.home import commits_of
from sparklog.sink import open_logs
from sparklog.sink.options import SinkOptions, parse
from sparklog.source.options import parse as parse_source

ROWS = pa.table({"value": ["a"]})


def to(path: object) -> SinkOptions:
    return parse({"path": str(path), "topic": "t"})


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "my log"
    open_logs.close()


@pytest.fixture
def spellings(path: Path) -> list[str]:
    path.mkdir()
    (path.parent / "link").symlink_to(path)
    return [
        str(path), f"{path}/", f"{path.parent}/./{path.name}", f"{path.parent}/link",
        f"{path}/../link/", f"file:{path}", f"file://{path}/", f"file://localhost{path}",
        os.path.relpath(path),
    ]  # fmt: skip


def test_one_log_however_its_path_is_spelled(path: Path, spellings: list[str]) -> None:
    assert len({id(open_logs.shared_log(to(one))) for one in spellings}) == 1
    other = open_logs.shared_log(to(path.parent / "other"))
    assert other is not open_logs.shared_log(to(path)), "two logs are two"
    open_logs.close(spellings[3])
    assert not is_marked_open(LOCAL, str(path)), "closed by another name"
    assert commits_of(other).is_valid()
    assert open_logs.shared_log(to(spellings[5])) is open_logs.shared_log(to(path))


def test_sinks_with_other_options_have_their_own_values(path: Path) -> None:
    mine = parse({"path": str(path), "topic": "t"})
    impatient = parse({"path": str(path), "topic": "t", "lock.timeout.ms": 50})
    greedy = parse({"path": str(path), "topic": "t", "log.min.free.bytes": 1 << 60})
    logs = [open_logs.shared_log(each) for each in (mine, impatient, greedy)]
    logs[0].create_topic("t")
    with sparklog.open(path, "rw") as another:  # a service's or a tool's in the same process
        assert another.append("t", ROWS) == {"t": {0: (0, 1)}}
        assert logs[0].append("t", ROWS) == {"t": {0: (1, 2)}}
        with pytest.raises(StorageUnavailableError, match=r"log\.min\.free\.bytes"):
            logs[2].append("t", ROWS)
        with commits_of(another).exclusive(), pytest.raises(LogLockedError, match="50 ms"):
            logs[1].append("t", ROWS)
        assert logs[1].append("t", ROWS) == {"t": {0: (2, 3)}}
    assert open_logs.shared_log(greedy) is logs[2]


def test_topics_of_a_removed_log(path: Path) -> None:
    log = open_logs.shared_log(to(path))
    log.create_topic("t")
    assert list(home_of(log).known_topics()) == ["t"]
    shutil.rmtree(path)
    with pytest.raises(LogReplacedError, match="no longer contains a log"):
        home_of(log).known_topics()


def test_readers_take_the_same_spellings(path: Path, spellings: list[str]) -> None:
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        log.append("t", ROWS)
    for one in spellings:
        with sparklog.open(one) as log:
            assert log.read("t").read_all().num_rows == 1


@pytest.mark.parametrize("url", ["s3:/bucket/x", "hdfs:/x", "dbfs:/x", "gs:/b"])
def test_a_store_is_named_by_two_slashes(url: str) -> None:
    for call in (lambda: to(url), lambda: sparklog.open(url, "rw")):
        with pytest.raises(InvalidRequestError, match="two slashes, such as s3://bucket/prefix"):
            call()


def test_the_url_of_a_store_is_a_path_with_its_commas() -> None:
    assert to("s3://bucket/a,b/").path == "s3://bucket/a,b"
    for url in ("s3://bucket/a,/data/log", "/data/log,s3://bucket/a", "s3://a/b,gs://c/d"):
        with pytest.raises(InvalidRequestError, match="is a single URL"):
            to(url)


def test_storage_options_are_given_as_a_dict_or_as_json_and_never_shown() -> None:
    given = {"key": "me", "secret": "hush", "client_kwargs": {"region_name": "x"}}
    for name in ("storage_options", "storageOptions", "STORAGEOPTIONS"):
        for value in (given, json.dumps(given)):
            options = parse({"path": "s3://bucket/x", name: value})
            assert options.storage == given
            assert "hush" not in repr(options)
    one, other = (parse({"path": "s3://b/x", "storageOptions": v}) for v in (given, "{}"))
    assert open_logs.settings_of(one) != open_logs.settings_of(other)
    assert "hush" not in str(open_logs.settings_of(one))  # a key of the logs that are open
    for wrong in ("hush", "[\"hush\"]", ["hush"], {"key": object(), "secret": "hush"}, 7):
        with pytest.raises(InvalidRequestError, match="storageOptions must be a JSON") as told:
            parse({"path": "s3://bucket/x", "storageOptions": wrong})
        assert "hush" not in str(told.value)


def test_other_hosts_files_are_refused() -> None:
    for url in ("file://elsewhere/x", "file:x"):
        with pytest.raises(InvalidRequestError, match="a directory of another host"):
            to(url)


def test_two_names_of_one_log_dir_are_one(path: Path, spellings: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="are the same directory"):
        sparklog.open(f"{path},{spellings[3]}", "rw")


def test_a_relative_path_is_resolved_where_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's working directory is another one."""
    monkeypatch.chdir(tmp_path)
    ring = {"remote.keyring": "keys.json", "remote.cache.directory": "cache"}
    source = parse_source({"path": "log", "subscribe": "t", **ring}, streaming=False)
    sink = to("log,second")
    monkeypatch.chdir("/")
    assert source.path == f"{tmp_path}/log"
    assert sink.path == f"{tmp_path}/log,{tmp_path}/second"
    assert source.remote.remote_keyring == f"{tmp_path}/keys.json"
    assert source.remote.remote_cache_directory == f"{tmp_path}/cache"


def test_a_removed_log_is_made_anew_by_who_begins(path: Path) -> None:
    """`rm -rf log` between two runs, as every notebook does."""
    log = open_logs.shared_log(to(path))
    log.create_topic("t")
    log.append("t", ROWS)
    shutil.rmtree(path)
    again = open_logs.shared_log(to(path))
    again.create_topic("t")
    assert again.append("t", ROWS) == {"t": {0: (0, 1)}}


def test_who_has_written_is_told_that_it_is_another_log(path: Path) -> None:
    log = open_logs.shared_log(to(path))
    log.create_topic("t")
    used = {home_of(log)}
    shutil.rmtree(path)
    assert open_logs.shared_log(to(path), used) is log
    with pytest.raises(LogReplacedError, match="no longer contains a log"):
        log.append("t", ROWS)
    again = open_logs.shared_log(to(path))  # another run
    again.create_topic("t")
    for _ in range(2):
        with pytest.raises(LogReplacedError):
            open_logs.shared_log(to(path), used)


def test_a_switched_link_leads_to_the_other_log(tmp_path: Path, path: Path) -> None:
    link = tmp_path / "link"
    for name in ("one", "two"):
        with sparklog.open(tmp_path / name, "rw") as log:
            log.create_topic(name)
    link.symlink_to(tmp_path / "one")
    assert list(open_logs.shared_log(to(link)).topics()) == ["one"]
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert list(open_logs.shared_log(to(link)).topics()) == ["two"]


def test_what_is_lent_is_closed_when_it_is_idle(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_logs, "LINGER_S", 0.05)
    with open_logs.borrowed(to(path)) as log:
        log.create_topic("t")
        with open_logs.borrowed(to(path)) as same:
            assert same is log
        timer = open_logs._timer
        assert timer is not None
        timer.join()
        assert is_marked_open(LOCAL, str(path)), "closed while it is lent"
    timer = open_logs._timer
    assert timer is not None
    timer.join()
    assert not is_marked_open(LOCAL, str(path))


def test_what_this_process_has_for_itself_stays_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query of its own goes on with its handle, whatever was lent besides, or lent of it."""
    monkeypatch.setattr(open_logs, "LINGER_S", 0.05)
    own = open_logs.shared_log(to(path))
    with open_logs.borrowed(to(path)), open_logs.borrowed(to(path.parent / "lent")):
        pass
    with open_logs.borrowed(to(path.parent / "kept")):
        kept = open_logs.shared_log(to(path.parent / "kept"))
    timer = open_logs._timer
    assert timer is not None
    timer.join()
    assert not is_marked_open(LOCAL, str(path.parent / "lent"))
    for log, at in ((own, path), (kept, path.parent / "kept")):
        assert open_logs.shared_log(to(at)) is log
        assert commits_of(log).is_valid()


def test_a_forked_process_leaves_its_parents_logs_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its exit it forgets them: a clean close is for the process that opened the log."""
    log = open_logs.shared_log(to(path))
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        open_logs.close()
    assert is_marked_open(LOCAL, str(path))
    assert commits_of(log).is_valid()
    log.close()


@pytest.mark.parametrize("number", [pytest.param("SIGHUP", marks=pytest.mark.deep), "SIGTERM"])
def test_what_is_lent_is_closed_before_sparks_signal(path: Path, number: str) -> None:
    code = f"""
        import os, signal
        from sparklog.sink import open_logs
        from sparklog.sink.options import parse
        signal.signal(signal.{number}, signal.SIG_DFL)  # nohup leaves SIGHUP ignored
        with open_logs.borrowed(parse({{"path": {str(path)!r}}})) as log:
            log.create_topic("t")
        os.kill(os.getpid(), signal.{number})
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode < 0
    assert not is_marked_open(LOCAL, str(path))
    assert (path / ".kafka_cleanshutdown").exists()
