"""The file systems on which a log dir may be written, by the names of the kernel's mounts."""

import re
from pathlib import Path

import pytest

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.logdir import broker_lockout
from tests.paths import ROOT

REFUSED = (
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "glusterfs", "afs",
    "fuse.sshfs", "fuse.s3fs", "fuse.glusterfs", "fuse", "NFS",
)  # fmt: skip
ACCEPTED = ("ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "virtiofs", "")


class Mounted(LocalFileSystem):
    """The local file system under another name."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def kind(self, path: str) -> str:
        return self._kind


@pytest.mark.parametrize("kind", REFUSED)
def test_a_log_on_a_network_mount_is_only_read(kind: str, tmp_path: Path) -> None:
    with sparklog.open(tmp_path, "rw") as log:
        log.create_topic("t")
    fs = Mounted(kind)
    with pytest.raises(InvalidRequestError, match=f"is on {kind}, where locks don't work"):
        sparklog.open(tmp_path, "rw", fs=fs)
    with pytest.raises(InvalidRequestError, match=f"is on {kind}, where locks don't work"):
        sparklog.open(tmp_path / "new", "rw", fs=fs)
    with sparklog.open(tmp_path, fs=fs) as log:
        assert list(log.topics()) == ["t"]


@pytest.mark.parametrize("kind", ACCEPTED)
def test_a_log_on_a_local_mount_is_written(kind: str, tmp_path: Path) -> None:
    with sparklog.open(tmp_path, "rw", fs=Mounted(kind)) as log:
        log.create_topic("t")


@pytest.mark.parametrize(("path", "kind"), [("/proc", "proc"), ("/sys", "sysfs")])
def test_the_kind_is_that_of_the_kernels_mount(path: str, kind: str) -> None:
    if not Path(path).is_mount():
        pytest.skip(f"{path} isn't mounted here")
    assert LOCAL.kind(path) == LOCAL.kind(f"{path}/./") == kind


def test_the_jvm_has_the_same_names() -> None:
    """Spark's manager keeps a checkpoint on such a mount: both sides must agree on what that is."""
    source = ROOT / "sparklog/jvm/scala/checkpoint/LogCheckpointFileManager.scala"
    found = re.search(r'Networked = "(.*)"\.r', source.read_text())
    assert found
    networked = re.compile(found[1])
    assert {kind for kind in (*REFUSED, *ACCEPTED) if networked.fullmatch(kind)} == set(REFUSED)


def test_the_names_that_are_refused_are_tested() -> None:
    source = Path(broker_lockout.__file__).read_text()
    found = re.search(r"_UNSOUND: Final = \((.*)\)", source)
    assert found
    for start in re.findall(r'"(\w+)"', found[1]):
        assert any(kind.startswith(start) for kind in REFUSED), start
