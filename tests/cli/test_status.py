"""`sparklog status` and `verify --quick`: what they print, and with which code they end."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.cli.findings import print_report
from sparklog.service import verify
from sparklog.service.health import Check, Health, Level
from sparklog.service.health.examiner import Examiner

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "my log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={"retention.ms": -1})
        log.append("t", pa.table({"value": ["x"]}))
    return path


def test_it_says_what_examine_says(log: str, capsys: Capture) -> None:
    assert run(["status", log]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "green: All is well: the log is writable, 1 partition, none offline"
    names = ["writable", "partitions", "readers", "disk", "service", "writers"]
    assert [line.split()[:2] for line in lines[1:]] == [[name, "green"] for name in names]
    assert run(["status", log, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["kind"], said["level"]) == ("log", "green")
    assert run(["metrics", log]) == 0
    assert 'sparklog_health{check="readers"} 0.0' in capsys.readouterr().out


_AS_NOBODY = """
import os, sys
from sparklog.cli.app import run
run(["status", sys.argv[1]])  # loads all that a user without rights may not find any more
print("---", flush=True)
try:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    os.listdir(sys.argv[1])
except PermissionError as error:
    sys.exit(f"no such user here: {error}")
sys.exit(run(["status", sys.argv[1]]))
"""


@pytest.mark.deep
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_as_a_user_who_may_only_read(log: str) -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own are closed to others
        os.chmod(place, 0o755)
        log = shutil.copytree(log, os.path.join(place, "log"))
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, log], capture_output=True, text=True, check=False
        )
    if "no such user here" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    first, _, then = done.stdout.partition("---\n")
    assert first.startswith("green: All is well: the log is writable, 1 partition")
    assert then.startswith(f"green: All is well: this user (uid 65534) may only read {log}; ")
    assert "the log is writable" not in then


def test_a_path_that_nobody_can_look_at(tmp_path: Path, capsys: Capture) -> None:
    """It may be there: it isn't called missing. A loop of links stands for lacking rights."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for words in (["status"], ["verify"], ["topics", "list"]):
        assert run([*words, str(loop / "log")]) == 1
        out, err = capsys.readouterr()
        assert f"can't stat {loop}/log: Too many levels of symbolic links" in out + err
        assert "not exist" not in out + err


@pytest.mark.parametrize(("level", "codes"), [
    (Level.GREEN, [0, 0, 0, 0]), (Level.AMBER, [0, 1, 0, 1]), (Level.RED, [1, 1, 0, 2]),
])  # fmt: skip
def test_exit_codes(
    log: str, level: Level, codes: list[int], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = shlex.join(["sparklog", "serve", log, "--once", "--task", "retain", "--dry-run"])
    check = Check("disk", level, "so | so", command)
    found = Health(log, 0, "log", (check,))
    monkeypatch.setattr(Examiner, "examine", lambda self: found)
    given = [[], ["--fail-on", "amber"], ["--fail-on", "never"], ["--nagios"]]
    assert [run(["status", log, *options]) for options in given] == codes
    out = capsys.readouterr().out
    state = {Level.GREEN: "OK", Level.AMBER: "WARNING", Level.RED: "CRITICAL"}[level]
    last = out.splitlines()[-1]
    assert last.startswith(f"SPARKLOG {state} - ")
    assert last.count("|") == 1, "a second one would end the words"
    assert last.endswith(f"| disk={level.rank};0;1;0;2")


def test_where_no_log_is(tmp_path: Path, capsys: Capture) -> None:
    gone = str(tmp_path / "gone")
    assert run(["status", gone]) == 1
    assert "does not exist: is its disk mounted?" in capsys.readouterr().out
    assert run(["status", gone, "--nagios"]) == 2
    assert run(["verify", "--quick", gone]) == 1
    assert run(["status", "bad://", "--nagios"]) in (2, 3)
    assert run(["status", gone, "--json", "--nagios"]) == 2
    assert not os.path.exists(gone)


def test_a_quick_verification(log: str, capsys: Capture) -> None:
    assert run(["verify", "--quick", log]) == 0
    out = capsys.readouterr().out
    assert out.startswith("green: ")
    assert "not looked at: the contents of 1 segment and their indexes" in out
    assert f"`sparklog verify '{log}'`" in out
    assert run(["verify", "--quick", "--repair", log]) == 2
    (Path(log) / "t-0" / "junk").touch()
    assert run(["verify", "--quick", "--json", log]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["health"]["level"] == "green"


@pytest.mark.deep
def test_watching_ends_by_a_signal(log: str) -> None:
    """In a real process, with a service that dies by kill -9 meanwhile."""
    module = [sys.executable, "-m", "sparklog.cli"]
    serving = subprocess.Popen([*module, "serve", log], stderr=subprocess.PIPE, text=True)
    assert serving.stderr is not None
    assert "serving" in serving.stderr.readline()
    with subprocess.Popen(
        [*module, "status", log, "--watch", "0.2"], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        led = f"led by process {serving.pid} on "
        assert next(line for line in watching.stdout if led in line)
        serving.kill()
        serving.wait()
        gone = next(line for line in watching.stdout if "no service runs" in line)
        assert "green" in gone, "no work is due"
        watching.send_signal(signal.SIGINT)
        for _ in watching.stdout:
            pass
        assert watching.wait(240) == 0
    serving.stderr.close()


def test_a_red_verdict_is_not_called_nothing(log: str, capsys: Capture) -> None:
    """On a disk that is mounted read-only no file is amiss."""
    checks = (Check("writable", Level.RED, "it is mounted read-only"),)
    report = replace(verify(log, quick=True), health=Health(log, 0, "log", checks))
    print_report(report)
    assert capsys.readouterr().out.endswith("NOT OK: red, as told above; nothing else found\n")
