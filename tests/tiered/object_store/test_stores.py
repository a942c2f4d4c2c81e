"""One contract, all stores: memory, files, the simulated one, a real S3 server, MinIO."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.testing.contracts import StoreContract
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store
from tests.tiered.s3 import Minio, S3Server


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Iterator[ObjectStore]:
        store = open_store("memory://contract/below", part_bytes=self.part_bytes)
        yield store
        store.delete([one.name for one in store.list()])


class TestFiles(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_store(f"file://{tmp_path}/made/later", part_bytes=self.part_bytes)


class TestFaultStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FaultStore(part_bytes=self.part_bytes)


@pytest.mark.s3
class TestS3(StoreContract):
    part_bytes = 5 << 20
    create_rounds = 2  # SeaweedFS has creators who meet wait for whole seconds

    @pytest.fixture
    def store(self, s3: S3Server) -> ObjectStore:
        return open_store(f"{s3.bucket()}/pre/fix", s3.options(), part_bytes=self.part_bytes)


@pytest.mark.s3
class TestMinio(StoreContract):
    part_bytes = 5 << 20

    @pytest.fixture
    def store(self, minio: Minio) -> ObjectStore:
        return open_store(f"{minio.bucket()}/pre/fix", minio.options(), part_bytes=self.part_bytes)
