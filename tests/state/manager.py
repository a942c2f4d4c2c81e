"""The checkpoint manager through Spark's gateway: its calls as Python's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

LogDir = "sparklog"


class Manager:
    """A LogCheckpointFileManager of the checkpoint at `root`; paths are relative to it."""

    def __init__(self, spark: SparkSession, root: Path, **conf: object) -> None:
        self.root = root
        self._jvm: Any = spark._jvm  # type: ignore[attr-defined]
        hadoop = self._jvm.org.apache.hadoop.conf.Configuration()
        for key, value in conf.items():
            hadoop.set("spark.sparklog.checkpoint." + key.replace("_", "."), str(value))
        self._manager = self._jvm.sparklog.checkpoint.LogCheckpointFileManager(
            self._path(""), hadoop
        )

    def create(self) -> "Manager":
        self._manager.createCheckpointDirectory()
        return self

    def write(self, path: str, content: bytes, *, overwrite: bool = False) -> None:
        stream = self.begin(path, overwrite=overwrite)
        stream.write(bytearray(content), 0, len(content))
        stream.close()

    def begin(self, path: str, *, overwrite: bool = False) -> Any:
        return self._manager.createAtomic(self._path(path), overwrite)

    def read(self, path: str) -> bytes:
        stream = self._manager.open(self._path(path))
        content = bytes(stream.readAllBytes())
        stream.close()
        return content

    def list(self, path: str) -> dict[str, int]:
        """Return names and lengths of the files in `path`, -1 for directories."""
        found = self._manager.list(self._path(path))
        return {s.getPath().getName(): -1 if s.isDirectory() else s.getLen() for s in found}

    def mkdirs(self, path: str) -> None:
        self._manager.mkdirs(self._path(path))

    def exists(self, path: str) -> bool:
        return bool(self._manager.exists(self._path(path)))

    def delete(self, path: str) -> None:
        self._manager.delete(self._path(path))

    def open(self, path: str) -> Any:
        return self._manager.open(self._path(path))

    def partition(self, name: str) -> Path:
        return self.root / LogDir / name

    def segment(self, name: str) -> Path:
        """Return the only segment of a partition."""
        (found,) = self.partition(name).glob("*.log")
        return found

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(str(self.root / path))


@pytest.fixture
def managers(spark: SparkSession, tmp_path: Path) -> Callable[..., Manager]:
    def make(name: str, **conf: object) -> Manager:
        return Manager(spark, tmp_path / name, **conf).create()

    return make
