"""Checkpoints whose sink's log has its home in a store: reset and forked with it."""

from pathlib import Path

import pytest

import sparklog
from sparklog.checkpoint import fork, history, reset
from sparklog.errors import BatchConflictError, InvalidRequestError
from tests.checkpoint.conftest import Golden
from tests.checkpoint.views import commit, read, tree


def write_log(url: str, writer: str) -> None:
    with sparklog.open(url, mode="rw") as log:
        log.create_topic("t")
        for batch in range(8, 12):
            commit(log, writer, batch)


def test_a_reset_lets_the_batches_come_again(golden: Golden, tmp_path: Path) -> None:
    path, url = golden("stateless"), f"file://{tmp_path}/home"
    query = history(path).query_id or ""
    write_log(url, query)
    done = reset(path, to=9, log=url)
    assert (done.log, done.writer) == (url, query)
    assert not (path / "sparklog.reset").exists()
    with sparklog.open(url, mode="rw") as log:
        for _ in range(2):  # once, and then as a replay
            commit(log, query, 10, "anew")
        assert read(log)[-6:] == ["11 0", "11 1", "11 2", "10 0", "10 1", "10 2"]


def test_where_no_log_is_none_is_made(golden: Golden, tmp_path: Path) -> None:
    path, url = golden("stateless"), f"file://{tmp_path}/home"
    before = tree(path)
    with pytest.raises(InvalidRequestError, match="contains no log that sparklog wrote"):
        reset(path, to=9, log=url)
    write_log(url, "another/sink")
    with pytest.raises(InvalidRequestError, match="its writers are: another/sink"):
        reset(path, to=9, log=url)
    assert tree(path) == before


def test_a_fork_takes_its_log_along(golden: Golden, tmp_path: Path) -> None:
    path, url, new = golden("stateless"), f"file://{tmp_path}/home", f"file://{tmp_path}/new"
    query = history(path).query_id or ""
    write_log(url, query)
    for other in (str(tmp_path / "new"), f"file:{tmp_path}/new"):
        with pytest.raises(InvalidRequestError, match="so its fork must be in a bucket too"):
            fork(path, tmp_path / "c2", to=9, log=url, new_log=other)
    done = fork(path, tmp_path / "c2", to=9, log=url, new_log=new)
    assert (done.log, done.batch) == (new, 9)
    with sparklog.open(new, mode="rw") as log:
        assert read(log) == [f"{batch} {n}" for batch in (8, 9) for n in range(3)]
        commit(log, query, 10, "anew")
    with sparklog.open(url, mode="rw") as log, pytest.raises(BatchConflictError):
        commit(log, query, 10, "anew")
