"""A log dir's commit log, by the contract of all commit logs."""

from collections.abc import Callable, Iterator

import pytest

import sparklog
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.home import commits_of
from sparklog.storage.commits import CommitLog
from sparklog.testing.commits_contract import CommitLogContract
from sparklog.testing.crashfs import CrashFS


class TestLogDir(CommitLogContract):
    options: dict[str, object] = {}  # noqa: RUF012

    @pytest.fixture
    def root(self, tmp_path) -> str:
        return str(tmp_path / "log")

    @pytest.fixture
    def fs(self) -> FileSystem:
        return LOCAL

    @pytest.fixture
    def open_commits(self, fs: FileSystem, root: str) -> Iterator[Callable[[], CommitLog]]:
        logs: list[sparklog.Log] = []

        def opened() -> CommitLog:
            logs.append(sparklog.open(root, "rw", fs=fs, options=self.options))
            return commits_of(logs[-1])

        yield opened
        for log in logs:
            log.close()


class TestUnsynced(TestLogDir):
    options = {"flush": "none"}  # noqa: RUF012


class TestCrashFS(TestLogDir):
    @pytest.fixture
    def root(self) -> str:
        return "/log"

    @pytest.fixture
    def fs(self) -> FileSystem:
        return CrashFS()
