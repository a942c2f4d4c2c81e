"""`sparklog checkpoint rewrite` and `diff` as a user calls them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.cli.app import run
from tests.checkpoint.conftest import Golden, golden, unpacked
from tests.spark.conftest import environment

__all__ = ["golden", "unpacked"]  # the fixtures
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--with", "module"], "'module' must have the form MODULE:FUNCTION"),
        (["--with", "nowhere:f"], "nowhere:f can't be loaded: No module named 'nowhere'"),
        (["--with", "json:nothing"], "json:nothing can't be loaded"),
        (["--with", "json:__name__"], "json:__name__ is no function"),
        (["--with", "json:loads", "--with", "json:dumps"], "use it once, or with a different NAME"),
        (["--with", "a=json:loads", "--with", "a=json:dumps"], "use it once, or with a different"),
    ],
)
def test_functions(golden: Golden, given: list[str], message: str, capsys: Capture) -> None:
    assert run(["checkpoint", "rewrite", str(golden("hdfs")), "new", *given]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.spark
@pytest.mark.deep
def test_rewrite_and_diff(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "corrections.py").write_text(
        "def some(frame):\n    return frame.limit(3)\n\ndef all_rows(frame):\n    return frame\n"
    )
    path = str(golden("hdfs"))

    def sparklog(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sparklog", "checkpoint", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300
        )

    done = sparklog("rewrite", path, "moved", "--provider", "rocksdb", "--partitions", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/moved continues after batch ")
    done = sparklog("diff", path, "moved")
    assert done.returncode == 0, done.stderr
    assert "is equal: " in done.stdout
    done = sparklog("rewrite", path, "some", "--with", "corrections:some", "--json")
    assert done.returncode == 0, done.stderr
    (operator,) = json.loads(done.stdout)["operators"]
    assert sum(operator["rows_after"]) == 3
    done = sparklog("diff", path, "some")
    assert done.returncode == 1, done.stderr
    assert "operator 0, default/default: " in done.stdout
    sides = [f"--with={side}=corrections:all_rows" for side in ("left", "right")]
    done = sparklog("rewrite", str(golden("join")), "joined", *sides)
    assert done.returncode == 0, done.stderr
    done = sparklog("rewrite", path, "some", "--provider", "rocksdb")
    assert done.returncode == 2
    assert f"{tmp_path}/some exists already: choose a new directory" in done.stderr
