"""One contract of reading, three homes: a log dir, a log dir with its tier, a bucket alone."""

from pathlib import Path

import pytest

import sparklog
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.segment_files import segment_bases
from sparklog.logdir.view import LogDirView
from sparklog.storage.segments import PartitionSegments
from sparklog.storage.view import View
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.segments_contract import SegmentsContract
from sparklog.testing.view_contract import ViewContract
from sparklog.tiered.archive.view import ArchiveView
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, copy_partition, objects, tiered_view
from tests.tiered.reading.test_tiered_segments import forget, note

KEPT = 2  # local segments that stay


def written(path: Path, fs: FileSystem = LOCAL) -> None:
    with sparklog.open(path, "rw", fs=fs) as log:
        log.create_topic("t", partitions=2, config={**SMALL, "remote.storage.enable": True})
        for p in (0, 1):
            fill(log, "t", p, 20)
        log.delete_records("t", {1: 5})


class OfView(ViewContract, SegmentsContract):
    """A home's view, and the segments of a partition that it shows."""

    @pytest.fixture
    def segments(self, view: View) -> PartitionSegments:
        return view.of_partition("t", 0, lambda segments: segments)


class TestLogDir(OfView):
    @pytest.fixture
    def view(self, tmp_path: Path) -> View:
        written(tmp_path / "log")
        return LogDirView(LOCAL, [str(tmp_path / "log")])


class TestLogDirOfAnotherFileSystem(OfView):
    @pytest.fixture
    def view(self) -> View:
        fs = CrashFS()
        written(Path("/log"), fs)
        return LogDirView(fs, ["/log"])


class TestLogDirWithItsTier(OfView):
    @pytest.fixture
    def view(self, tmp_path: Path) -> View:
        path, store = tmp_path / "log", DictStore()
        written(path)
        copied = [s for p in (0, 1) for s in copy_partition(path / f"t-{p}", store)]
        note(path, copied)
        for p in (0, 1):
            forget(path / f"t-{p}", segment_bases(LOCAL, str(path / f"t-{p}"))[:-KEPT])
        return tiered_view([str(path)], objects(store))


class TestBucketAlone(OfView):
    @pytest.fixture
    def view(self, tmp_path: Path) -> View:
        path, store = tmp_path / "log", DictStore()
        written(path)
        for p in (0, 1):
            copy_partition(path / f"t-{p}", store)
        return ArchiveView(store.url, objects(store))
