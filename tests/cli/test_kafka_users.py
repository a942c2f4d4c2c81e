"""`sparklog kafka-users`: users added, changed, deleted and shown; no password anywhere."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.cli.app import run
from sparklog.kafka.users import read_users


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "users.json")


def _word(tmp_path, text):
    found = tmp_path / "password"
    found.write_text(text)
    return str(found)


def _run(capsys, *given):
    code = run(["kafka-users", *given])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_user_from_the_first_to_the_last(path, tmp_path, capsys):
    word = _word(tmp_path, "grüße, ge heim=\nsecond line\n")
    quick = ("--iterations", "4096")
    assert _run(capsys, path, "--add", "alice", "--password-file", word, *quick)[0] == 0
    user = read_users(path)["alice"]
    assert user.rights_held == ["read"]
    assert all(keys.matches("grüße, ge heim=") for keys in user.credentials.values())
    assert "geheim" not in Path(path).read_text() and os.stat(path).st_mode & 0o777 == 0o600
    code, _, err = _run(capsys, path, "--add", "alice", "--password-file", word, *quick)
    assert code == 2 and "has a user 'alice' already; use --alter" in err
    assert _run(capsys, path, "--alter", "alice", "--rights", "read,write")[0] == 0
    after = read_users(path)["alice"]
    assert (after.rights_held, after.credentials) == (["read", "write"], user.credentials)
    _word(tmp_path, "other")
    assert _run(capsys, path, "--alter", "alice", "--password-file", word, *quick)[0] == 0
    after = read_users(path)["alice"]
    assert after.rights_held == ["read", "write"]
    assert all(keys.matches("other") for keys in after.credentials.values())
    assert _run(capsys, path, "--add", "CN=x,O=y", "--no-password", "--rights", "admin")[0] == 0
    code, out, _ = _run(capsys, path)
    assert (code, out) == (
        0,
        "CN=x,O=y\tmay admin\tby a client certificate\n"
        "alice\tmay read,write\tby SCRAM-SHA-256,SCRAM-SHA-512\n",
    )
    code, out, _ = _run(capsys, path, "--delete", "alice", "--json")
    assert json.loads(out) == [{"name": "CN=x,O=y", "rights": ["admin"], "mechanisms": []}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "no such users' file"),
        (("--delete", "bob"), "has no user 'bob'; its users: none"),
        (("--alter", "bob", "--rights", "read"), "no such users' file"),
        (("--alter", "bob"), "no change is requested"),
        (("--add", "a", "--delete", "b"), "choose a single action"),
        (("--rights", "read"), "require --add or --alter"),
        (("--delete", "a", "--password"), "require --add or --alter"),
        (("--alter", "a", "--no-password"), "--no-password requires --add"),
        (("--add", "a", "--rights", "all", "--no-password"), "rights must be among read"),
        (("--add", "", "--no-password"), "a user's name must have 1 to 255 bytes"),
        (("--add", "a"), "no terminal to ask for a password: use --password-file -"),
        (("--add", "a", "--password-file", "/dev/null"), "first line of the file has no password"),
        (("--add", "a", "--iterations", "1", "--no-password"), "4096<=x<=1000000"),
    ],
)
def test_what_can_not_be(path, capsys, given, said, monkeypatch):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    code, out, err = _run(capsys, path, *given)
    assert (code, out) == (2, "") and said in " ".join(err.split())
    assert not os.path.exists(path)


def test_a_password_is_asked_for_without_echo(path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sparklog.cli", "kafka-users", path, "--add", "bob"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        shown = b""
        for answer in (b"s3cret\n", b"s3cret\n"):
            while not shown.endswith(b": "):
                shown += os.read(ours, 100)
            os.write(ours, answer)
            shown += b"\n"
        try:
            while piece := os.read(ours, 100):
                shown += piece
        except OSError:  # the end of a terminal
            pass
    os.close(ours)
    assert running.returncode == 0
    assert b"s3cret" not in shown and b"Completed updating config for user bob." in shown
    assert all(keys.matches("s3cret") for keys in read_users(path)["bob"].credentials.values())
