"""The jars of the wheel, as `make jars` builds them here; once, in the tests' cache."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import jars
from tests.paths import ROOT

FOLDER = Path("sparklog") / "jvm" / "jars"
_INPUTS = ("scripts/jars.py", "sparklog/jvm", "sparklog/__init__.py", "sparklog/spark_support.py")


def clone(tree: Path) -> Path:
    """Copy the files that git has, but for the tests."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    return tree


def built_jars() -> Path:
    """Return a directory with the jars and their SHA256SUMS. Raises: jars.Unavailable."""
    digest = hashlib.sha256()
    for name in _INPUTS:
        files = [ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*"))
        for file in files:
            if file.suffix in {".py", ".scala"} or file.name == "SHA256SUMS":
                digest.update(file.read_bytes())
    directory = jars.cache() / f"jars-{digest.hexdigest()[:12]}"

    def build(target: Path) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            tree = clone(Path(temporary))
            command = [sys.executable, str(tree / "scripts" / "jars.py")]
            done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=1200)
            if "can't be built: Maven can't" in done.stderr:
                raise jars.Unavailable(done.stderr.strip())
            assert done.returncode == 0, done.stderr
            shutil.copytree(tree / FOLDER, target, dirs_exist_ok=True)

    jars.once(directory, build)
    return directory


def with_jars(tree: Path) -> Path:
    """Copy the jars to a tree, whose build then needn't build them. Raises: jars.Unavailable."""
    shutil.copytree(built_jars(), tree / FOLDER, dirs_exist_ok=True)
    return tree
