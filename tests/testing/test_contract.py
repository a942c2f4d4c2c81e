"""One contract, three file systems: the machine's, its model, and the model that reopens files."""

from pathlib import Path

import pytest

from sparklog.fs import FileSystem, LocalFileSystem
from sparklog.testing.contracts import FileSystemContract
from sparklog.testing.crashfs import CrashFS


class TestLocalFileSystem(FileSystemContract):
    @pytest.fixture
    def fs(self) -> FileSystem:
        return LocalFileSystem()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestLocalFileSystemWithFewDescriptors(TestLocalFileSystem):
    @pytest.fixture
    def fs(self) -> FileSystem:
        return LocalFileSystem(descriptors=0)


class TestCrashFS(FileSystemContract):
    @pytest.fixture
    def fs(self) -> FileSystem:
        return CrashFS()

    @pytest.fixture
    def root(self, fs: FileSystem) -> str:
        fs.mkdir("/log")
        return "/log"


class TestCrashFSThatReopens(TestCrashFS):
    @pytest.fixture
    def fs(self) -> FileSystem:
        return CrashFS(reopen=True)
