"""One contract of homes, and one of groups: log dirs, a log in a store, and an archive."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import sparklog
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.names import readers_prefix
from sparklog.fs import LOCAL
from sparklog.log.log import Log
from sparklog.logdir.group_offsets import GroupFiles, group_path
from sparklog.storage.group_store import Groups
from sparklog.testing.arguments_contract import ArgumentsContract
from sparklog.testing.groups_contract import GroupsContract
from sparklog.testing.home_contract import HomeContract, ReadingContract
from sparklog.tiered.target import open_store
from tests.tiered.buckets import small_archive


class Homes(HomeContract, ArgumentsContract):
    """Both contracts; a subclass has the path of a new log."""


class TestLogDir(Homes):
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return str(tmp_path / "log")


class TestTwoLogDirs(Homes):
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return f"{tmp_path / 'one'},{tmp_path / 'two'}"


class TestMemoryStore(Homes):
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return f"memory://{tmp_path.name}/home"


class TestFileStore(Homes):
    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/home"


class TestArchive(ReadingContract):
    @pytest.fixture
    def reader(self, tmp_path: Path) -> Log:
        return small_archive(tmp_path)


class TestGroupsOfLogDir(GroupsContract):
    @pytest.fixture
    def home(self, tmp_path: Path) -> str:
        with sparklog.open(tmp_path / "log", "rw"):
            return str(tmp_path / "log")

    @pytest.fixture
    def new_groups(self, home: str) -> Callable[[], Groups]:
        return lambda: Groups(GroupFiles(LOCAL, home))

    @pytest.fixture
    def damage(self, home: str) -> Callable[[str], None]:
        def spoil(group: str) -> None:
            path = group_path(home, group)
            os.truncate(path, os.path.getsize(path) - 5)

        return spoil


class OfStore(GroupsContract):
    @pytest.fixture
    def new_groups(self, url: str) -> Callable[[], Groups]:
        retry_policy = RetryPolicy(first_ms=1, longest_ms=20)
        return lambda: Groups(GroupObjects(open_store(url), retry_policy=retry_policy))

    @pytest.fixture
    def damage(self, url: str) -> Callable[[str], None]:
        def spoil(group: str) -> None:
            store = open_store(url)
            for one in store.list(readers_prefix(group)):
                store.put(one.name, store.get(one.name)[:-5])

        return spoil


class TestGroupsOfMemoryStore(OfStore):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"memory://{tmp_path.name}/groups"


class TestGroupsOfFileStore(OfStore):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/groups"
