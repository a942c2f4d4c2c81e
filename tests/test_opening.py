"""Which home a path names: by what lies there, and where nothing lies by how it is spelled."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.logdir.home import open_log as open_log_dir
from sparklog.opening import MARK, holds_home, resolved, same_place, url_of
from sparklog.service import Service
from sparklog.tiered.target import open_store

ROWS = pa.table({"value": [b"x"] * 3})


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", config={"remote.storage.enable": "true"})
        log.append("t", ROWS)
    return tmp_path / "log"


@pytest.fixture
def archive(tmp_path: Path, log_dir: Path) -> Path:
    with sparklog.open(log_dir, "rw") as log:
        log.alter_topic("t", config={"segment.idle.ms": "1"})
    with Service(str(log_dir), remote=f"file://{tmp_path}/copies") as service:
        service.run_once()
        service.run_once()
    return tmp_path / "copies"


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_log_dir_is_one_however_it_is_spelled(log_dir: Path, mode: str) -> None:
    for spelled in (str(log_dir), f"file:{log_dir}", f"file://{log_dir}", f"{log_dir}/"):
        assert url_of(spelled, mode=mode) is None
        with sparklog.open(spelled, mode) as log:
            assert log.offsets("t") == {0: (0, 3)}


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_what_lies_in_a_log_dir_is_no_log(log_dir: Path, mode: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=f"t-0 is the directory of a single partition: .*{log_dir}$"
    ):
        sparklog.open(log_dir / "t-0", mode)
    segment = log_dir / "t-0" / "00000000000000000000.log"
    with pytest.raises(InvalidRequestError, match=r"0\.log is a file: give the log's directory"):
        sparklog.open(segment, mode)
    assert not (log_dir / "t-0" / "sparklog.lock").exists()


def test_a_log_may_have_the_name_of_a_partition(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "kafka-1", "rw") as log:
        log.create_topic("t")
    with sparklog.open(tmp_path / "kafka-1") as log:
        assert [*log.topics()] == ["t"]


def test_where_nothing_lies_two_slashes_make_a_store(tmp_path: Path) -> None:
    place = tmp_path / "new"
    for _ in range(2):  # missing, then empty
        assert url_of(f"file://{place}", mode="rw") == f"file://{place}"
        assert url_of(f"file://localhost{place}/", mode="rw") == f"file://{place}"
        for spelled in (place, str(place), f"file:{place}", f"{place},{tmp_path}/other"):
            assert url_of(spelled, mode="rw") is None
        assert url_of(f"file://{place}") is None  # to read, nothing is nothing
        place.mkdir(exist_ok=True)


def test_a_home_in_a_directory_is_never_taken_over_as_a_log_dir(tmp_path: Path) -> None:
    place = tmp_path / "home"
    assert not holds_home(f"file://{place}")
    open_store(f"file://{place}").put(MARK, b"{}")
    for spelled in (place, f"file:{place}", f"file://{place}/"):
        for mode in ("r", "rw"):
            assert url_of(spelled, mode=mode) == f"file://{place}"
    assert holds_home(f"file://{place}")
    with pytest.raises(InvalidRequestError, match="is the bucket of a log"):
        open_log_dir(place, mode="rw")
    assert [each.name for each in place.iterdir()] == [MARK]


def test_a_log_that_is_being_made_is_not_read_as_an_archive(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/home"
    open_store(url).put("sparklog.import", b"{}")
    assert url_of(tmp_path / "home") == url
    with pytest.raises(InvalidRequestError, match="isn't complete yet"):
        sparklog.open(tmp_path / "home")
    open_store(url).put(MARK, b"{}")
    assert holds_home(url)


def test_an_archive_is_read_by_its_directory_and_its_url(archive: Path) -> None:
    for spelled in (str(archive), f"file:{archive}", f"file://{archive}"):
        assert url_of(spelled) == f"file://{archive}"
        with sparklog.open(spelled) as log:
            assert log.offsets("t") == {0: (0, 3)}
            with pytest.raises(InvalidRequestError, match="open for reading"):
                log.append("t", ROWS)
        with pytest.raises(InvalidRequestError, match="archive, which is read-only"):
            sparklog.open(spelled, "rw")


def test_a_store_is_not_asked_which_url_it_is() -> None:
    for url in ("s3://no-such-bucket/x", "memory://x", "gs://b/a,b"):
        for mode in ("r", "rw"):
            assert url_of(url, mode=mode) == resolved(f"{url}/") == url


def test_two_spellings_of_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "log")
    monkeypatch.chdir(tmp_path)
    assert resolved("log,other") == f"{tmp_path}/log,{tmp_path}/other"
    assert resolved("file:///a/b/") == "file:///a/b"
    assert resolved("file:/a/b/") == "/a/b"
    assert same_place("log", "link")
    assert same_place("log", f"file://{tmp_path}/link")
    assert not same_place("log", "log,link")
    assert same_place("s3://b/x", "s3a://b/x/")
    for one, other in (("s3://b/x", "s3://b/y"), ("s3://b/x", "gs://b/x"), ("log", "s3://b/x")):
        assert not same_place(one, other)
    assert os.getcwd() == str(tmp_path)


def test_a_mode_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="must be 'r' or 'rw'"):
        sparklog.open(tmp_path, "w")


def test_an_argument_that_open_does_not_have_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "log", f"file://{tmp_path}/home"):
        with pytest.raises(InvalidRequestError, match="no argument flush: pass options of the log"):
            sparklog.open(path, "rw", flush="none")
        assert not (tmp_path / os.path.basename(path)).exists()
        with sparklog.open(path, "rw", options={"flush": "none"}):  # what the message advises
            pass


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_path_or_options_of_another_type_are_refused(tmp_path: Path, mode: str) -> None:
    for path in (None, 5, b"log"):
        with pytest.raises(InvalidRequestError, match="expected text or a"):
            sparklog.open(path, mode)  # type: ignore[arg-type]
    for where in (tmp_path / "log", f"file://{tmp_path}/home"):
        with pytest.raises(InvalidRequestError, match="expected a dict"):
            sparklog.open(where, mode, options="flush")  # type: ignore[arg-type]


def test_options_of_a_store_are_refused_where_nothing_is_remote(
    tmp_path: Path, log_dir: Path
) -> None:
    for path in (log_dir, f"{log_dir},{tmp_path / 'second'}"):
        with pytest.raises(InvalidRequestError, match="is a directory without remote storage"):
            sparklog.open(path, storage_options={"key": "k"})
    with sparklog.open(log_dir, storage_options={}) as log:
        assert log.offsets("t") == {0: (0, 3)}
    url = f"file://{tmp_path}/home"
    with sparklog.open(url, "rw", storage_options={"auto_mkdir": True}) as log:
        assert log.topics() == {}


def test_options_of_a_store_are_taken_where_a_tier_is(archive: Path, log_dir: Path) -> None:
    assert archive.is_dir()
    with sparklog.open(log_dir, storage_options={"auto_mkdir": True}) as log:
        assert log.offsets("t") == {0: (0, 3)}
    (log_dir / "sparklog.remote").unlink()
    with sparklog.open(log_dir, storage_options={"auto_mkdir": True}) as log:
        assert log.offsets("t") == {0: (0, 3)}
