"""The package in a zip, as for `spark-submit --py-files`: its kernel is compiled there too."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT

LOOK = """
import json, logging, sys, tempfile
tempfile.tempdir = sys.argv[1]
logging.basicConfig(format="%(message)s")
from sparklog.format import kernel, records
print(json.dumps([kernel.COMPILED, kernel.__file__, records.__file__]))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip of this checkout's package."""
    path = tmp_path_factory.mktemp("py-files") / "sparklog.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for file in sorted((ROOT / "sparklog").rglob("*")):
            if file.suffix in {".py", ".so", ".pxd"} and ".cpython-" not in file.name:
                packed.write(file, file.relative_to(ROOT))
        names = packed.namelist()
    if not any(name.endswith(".so") for name in names):
        pytest.skip("this checkout has no compiled kernel")
    return path


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The directory for temporary files of the processes of a test."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    return directory


def look(archive: Path, temporary: Path) -> tuple[bool, Path, str]:
    """Import the package in a new process: whether its kernel is compiled, its file, and stderr."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOOK, temporary], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{archive}:{libraries()}"}, cwd=archive.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    compiled, kernel, records = json.loads(done.stdout)
    assert records.startswith(str(archive))
    return compiled, Path(kernel), done.stderr


def libraries() -> Path:
    return Path(pytest.__file__).parents[1]


def test_all_processes_use_the_same_files(archive: Path, temporary: Path) -> None:
    compiled, kernel, said = look(archive, temporary)
    assert (compiled, said) == (True, "")
    assert temporary in kernel.parents
    written = kernel.stat()
    assert look(archive, temporary) == (True, kernel, "")
    assert kernel.stat().st_mtime_ns == written.st_mtime_ns
    assert len(list(temporary.iterdir())) == 1


@pytest.mark.parametrize("how", ["writable for others", "a link", "another user's"])
def test_a_directory_that_another_user_prepared_is_not_used(
    archive: Path, temporary: Path, how: str
) -> None:
    kernel = look(archive, temporary)[1]
    prepared = kernel.parents[2]
    if how == "writable for others":
        prepared.chmod(0o777)
    elif how == "a link":
        prepared.rename(temporary / "elsewhere")
        prepared.symlink_to(temporary / "elsewhere")
    elif os.getuid() != 0:
        pytest.skip("only root can give files to other users")
    else:
        os.chown(prepared, 12345, 12345)
    compiled, other, _ = look(archive, temporary)
    assert compiled
    assert prepared not in other.parents
    assert temporary in other.parents


@pytest.mark.parametrize("how", ["nowhere to write", "of another platform", "none"])
def test_otherwise_the_kernel_runs_interpreted(
    archive: Path, temporary: Path, tmp_path: Path, how: str
) -> None:
    if how == "nowhere to write":
        temporary = tmp_path / "missing"
    else:
        other = tmp_path / "other.zip"
        with zipfile.ZipFile(archive) as packed, zipfile.ZipFile(other, "w") as written:
            for name in packed.namelist():
                if not name.endswith(".so"):
                    written.writestr(name, packed.read(name))
                elif how == "of another platform":
                    written.writestr(name, b"MZ" + packed.read(name)[2:])
        archive = other
    compiled, kernel, said = look(archive, temporary)
    assert not compiled
    assert str(kernel).startswith(str(archive))
    assert "up to 60 times slower" in said
