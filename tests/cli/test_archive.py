"""`sparklog checkpoint archive`, `restore` and `points` as users and scripts meet them."""

import json
from pathlib import Path

import pytest

from sparklog.checkpoint import verify
from sparklog.cli.app import run
from tests.checkpoint.conftest import Golden, golden, unpacked

Capture = pytest.CaptureFixture[str]
__all__ = ["golden", "unpacked"]  # fixtures


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    path = tmp_path / "keyring"
    path.write_text("a AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n")
    return str(path)


def test_there_and_back_for_people(golden: Golden, tmp_path: Path, capsys: Capture) -> None:
    path, url = golden("changelog"), f"file://{tmp_path}/archive"
    assert run(["checkpoint", "archive", str(path), url, "--batch", "9"]) == 0
    out = capsys.readouterr().out
    assert ".9.checkpoint." in out
    assert " of batch 9: " in out
    assert run(["checkpoint", "archive", str(path), url]) == 0
    assert " of batch 13: " in capsys.readouterr().out
    assert run(["checkpoint", "points", url]) == 0
    rows = capsys.readouterr().out.strip().splitlines()
    assert [row.split()[-2:] for row in rows[2:]] == [["9", "no"], ["13", "no"]]
    back = tmp_path / "back"
    assert run(["checkpoint", "restore", url, str(back), "--batch", "9"]) == 0
    assert "files, " in capsys.readouterr().out
    assert verify(back).latest == 9


def test_for_scripts_and_encrypted(
    golden: Golden, tmp_path: Path, keyring: str, capsys: Capture
) -> None:
    path, url = golden("hdfs"), f"file://{tmp_path}/archive"
    key = ["--keyring", keyring]
    assert run(["checkpoint", "archive", str(path), url, *key, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["batch"] == 13
    assert run(["checkpoint", "points", url, "--json"]) == 0
    (point,) = json.loads(capsys.readouterr().out)
    assert (point["name"], point["batch"], point["log"]) == (made["point"], 13, False)
    back = str(tmp_path / "back")
    assert run(["checkpoint", "restore", url, back]) == 2
    assert "pass the keyring" in capsys.readouterr().err
    assert run(["checkpoint", "restore", url, back, *key, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == made["bytes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["restore", "file:///nowhere/at/all", "back"], "no snapshot of a checkpoint"),
        (["prune", "memory://x", "--keep", "1"], "prune was removed: set lifecycle rules"),
        (["archive", "/", "memory://x", "--rewrite-days", "0"], "0 is not in the range x>=1"),
        (
            ["archive", "/nowhere/at/all", "memory://x"],
            "does not exist: pass the query's checkpointLocation",
        ),
    ],
)
def test_wrong_use_is_2(capsys: Capture, arguments: list[str], words: str) -> None:
    assert run(["checkpoint", *arguments]) == 2
    assert words in capsys.readouterr().err
