"""A log dir's lease, by the contract of all leases."""

import os
from collections.abc import Callable

import pytest

from sparklog.clock import system_clock
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.lease import ENDPOINT_NAME, NAME, SIZE, EndpointLock, ServiceLease
from sparklog.storage.lease import Lease, LeaseLostError
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.lease_contract import EndpointLeaseContract, UpkeepLeaseContract


@pytest.fixture
def root(tmp_path) -> str:
    return str(tmp_path)


@pytest.fixture
def fs() -> FileSystem:
    return LOCAL


class TestLogDir(UpkeepLeaseContract):
    @pytest.fixture
    def new_lease(self, fs: FileSystem, root: str) -> Callable[[], Lease]:
        return lambda: ServiceLease(fs, system_clock, root)

    @pytest.fixture
    def later(self) -> Callable[[], None]:
        return lambda: None

    @pytest.fixture
    def lose(self, fs: FileSystem, root: str) -> Callable[[Lease], None]:
        return lambda _: fs.rename(os.path.join(root, NAME), os.path.join(root, "gone"))


class TestEndpoints(EndpointLeaseContract):
    """The lease of endpoints: another file, and what its holder says of itself."""

    @pytest.fixture
    def new_lease(self, fs: FileSystem, root: str) -> Callable[[], Lease]:
        said = {"endpoint": "h:9092", "node_id": 1}
        return lambda: EndpointLock(fs, system_clock, root, said)

    @pytest.fixture
    def lose(self, fs: FileSystem, root: str) -> Callable[[Lease], None]:
        old = os.path.join(root, ENDPOINT_NAME)
        return lambda _: fs.rename(old, os.path.join(root, "gone"))

    def test_what_is_half_written_is_looked_at_again(
        self, new_lease: Callable[[], EndpointLock], root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And counts for nothing where it stays so: an endpoint that died as it wrote."""
        one, two = new_lease(), new_lease()
        assert one.acquire()
        one.publish({"groups": ["a"]})
        path = os.path.join(root, ENDPOINT_NAME)
        with open(path, "r+b") as file:
            file.seek(SIZE + 5)
            file.write(b"torn")
        monkeypatch.setattr("sparklog.logdir.lease._WRITTEN_WITHIN_MS", 50)
        assert two.published() == {}
        one.publish({"groups": ["b"]})
        assert two.published() == {"groups": ["b"]}
        one.release()

    def test_it_is_not_the_services(
        self, new_lease: Callable[[], Lease], fs: FileSystem, root: str
    ) -> None:
        one, service = new_lease(), ServiceLease(fs, system_clock, root)
        assert one.acquire()
        assert service.acquire()
        service.release()
        one.release()


class TestCrashFS(TestLogDir):
    @pytest.fixture
    def root(self) -> str:
        return "/log"

    @pytest.fixture
    def fs(self, root: str) -> FileSystem:
        fs = CrashFS()
        fs.mkdir(root)
        return fs


def test_another_one_that_believes_in_it_too(tmp_path) -> None:
    """Where locks break (a disk that was copied): what the file says counts."""
    lease = ServiceLease(LOCAL, system_clock, str(tmp_path))
    assert lease.acquire()
    lease.check()
    (tmp_path / NAME).write_text('{"token": "another", "pid": 1, "host": "elsewhere"}'.ljust(512))
    with pytest.raises(LeaseLostError, match="of process 1 on host elsewhere has taken over"):
        lease.check()
    assert not lease.held
