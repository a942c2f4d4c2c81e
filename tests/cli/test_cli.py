"""The command line as users and scripts meet it: output, exit codes, signals, missing libraries."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.errors import LogLockedError
from sparklog.storage.round_report import Deleted, Expired, Report, Uploaded
from tests.service.logs import flip, kept, logs, make
from tests.waiting import until

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "log"
    make(path)
    return path


@pytest.fixture
def log(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "log"))


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sparklog.cli", *arguments],
        capture_output=True, text=True, env={**os.environ, **environment}, timeout=240,
    )  # fmt: skip


def test_the_shell_completes() -> None:
    """As the script does that `_SPARKLOG_COMPLETE=bash_source sparklog` prints."""
    script = command(_SPARKLOG_COMPLETE="bash_source")
    assert script.returncode == 0
    assert "_SPARKLOG_COMPLETE=bash_complete" in script.stdout
    asked = {"_SPARKLOG_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    assert command(COMP_WORDS="sparklog ver", **asked).stdout.split() == ["plain,verify"]
    asked["COMP_CWORD"] = "2"
    assert "plain,history" in command(COMP_WORDS="sparklog checkpoint ", **asked).stdout.split()


# -- verify ----------------------------------------------------------------------------------------


def test_a_good_log(log: Path) -> None:
    done = command("verify", str(log))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{log} (closed): 3 partitions, 9 segments, ")
    assert done.stdout.endswith("ok: nothing found\n")


def test_a_repair_in_steps(log: Path, capsys: Capture) -> None:
    (log / "t-0" / "00000000000000000024.index").unlink()
    before = kept(log)
    assert run(["verify", str(log)]) == 1
    text = capsys.readouterr().out
    assert "t-0/00000000000000000024.index" in text
    assert "rebuild the segment's indexes" in text
    assert text.endswith("NOT OK: 1 difference\n")
    assert run(["verify", str(log), "--repair", "--dry-run"]) == 1
    assert kept(log) == before
    capsys.readouterr()
    assert run(["verify", str(log), "--repair"]) == 0
    text = capsys.readouterr().out
    assert "done: rebuilt " in text
    assert text.endswith("ok: 1 difference\n")
    assert run(["verify", str(log)]) == 0


def test_damage_as_json(log: Path, capsys: Capture) -> None:
    flip(logs(log / "t-0")[2], 150)
    assert run(["verify", str(log), "--json", "--threads", "1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["counts"]["damage"]) == (False, 1)
    (finding,) = found["findings"]
    assert finding["file"] == str(logs(log / "t-0")[2])
    assert (finding["first"], finding["end"], finding["repair"]) == (26, 28, None)


def test_markup_in_a_path_is_no_markup(log: Path, tmp_path: Path, capsys: Capture) -> None:
    odd = tmp_path / "[red]x"
    log.rename(odd)
    (odd / "t-0" / "[bold]").write_text("")
    assert run(["verify", str(odd)]) == 0
    text = capsys.readouterr().out
    assert "[red]x" in text
    assert "t-0/[bold]" in text


# -- wrong use and errors --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["verify"], "Missing argument 'PATH'"),
        (["verify", "nowhere"], "does not exist"),
        (["verify", "a,,b"], "must be a directory"),
        (["verify", ".", "--threads", "0"], "0 is not in the range"),
        (["verify", "no/log/here"], "does not exist"),
        (["verify", ".", "--what"], "No such option"),
        (["fix"], "No such command"),
        (["serve", ".", "--option", "retention"], "must have the form key=value"),
    ],
)
def test_wrong_use_is_2(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: Any, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.out == ""
    assert "Traceback" not in said.err
    usage, _, last = said.err.strip().splitlines()[0], *said.err.strip().splitlines()[-2:]
    assert usage.startswith("Usage: sparklog ")
    assert last.startswith("Error: ")


def test_help_and_version(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"sparklog {sparklog.__version__}\n"
    assert run(["verify", "-h"]) == 0
    assert "--repair" in capsys.readouterr().out


def test_without_the_extra(tmp_path: Path) -> None:
    """The core imports, and the command says what to install."""
    for name in ("click", "rich"):
        (tmp_path / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('there is none', name={name!r})"
        )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = command("verify", "x", PYTHONPATH=path)
    assert done.returncode == 2
    assert "pip install 'sparklog[cli]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    code = "import sparklog, sparklog.service; print(sparklog.service.verify.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "verify\n"


# -- serve -----------------------------------------------------------------------------------------


class FakeReport:
    errors: ClassVar[list[str]] = []
    standing_by = ""

    def to_dict(self) -> dict[str, Any]:
        return {"rolled": 1}

    def __str__(self) -> str:
        return "rolled 1 segment"


class FakeService:
    """Takes the place of the service: what the command does with it is what counts here."""

    calls: ClassVar[list[Any]] = []
    failure: ClassVar[Exception | None] = None

    def __init__(
        self,
        path: str,
        *,
        remote: str | None = None,
        storage_options: Mapping[str, Any] = {},
        keyring: Any = None,
        plain: bool = False,
        take_over: bool = False,
        options: Mapping[str, str] = {},
        map: Any = None,
        metrics_port: int | None = None,
        metrics_address: str = "127.0.0.1",
    ) -> None:
        self.metrics_url = None if metrics_port is None else f"http://{metrics_address}/metrics"
        self.calls.append((path, dict(options)))
        if remote is not None:
            self.calls.append((remote, dict(storage_options)))

    def run_once(self, now: int | None = None, dry_run: bool = False) -> FakeReport:
        self.calls.append(("run_once", dry_run))
        if self.failure is not None:
            raise self.failure
        return FakeReport()

    def close(self) -> None:
        self.calls.append("close")

    def __enter__(self) -> "FakeService":
        self.calls.append("start")
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeService]:
    monkeypatch.chdir(tmp_path)
    os.mkdir("p")
    monkeypatch.setattr(FakeService, "calls", [])
    monkeypatch.setattr(FakeService, "failure", None)
    monkeypatch.setattr("sparklog.cli.serve.Service", FakeService)
    return FakeService


def test_one_round(service: type[FakeService], capsys: Capture) -> None:
    options = ["--option", "log.retention.hours=1", "--option", "x = y=z"]
    assert run(["serve", "p", *options, "--once"]) == 0
    assert capsys.readouterr().out == "rolled 1 segment\n"
    assert service.calls == [
        ("p", {"log.retention.hours": "1", "x": "y=z"}), ("run_once", False), "close",
    ]  # fmt: skip


def test_a_real_round(tmp_path: Path, capsys: Capture) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config={"internal.segment.bytes": "200", "retention.ms": "1"})
        for _ in range(5):
            log.append("t", pa.table({"value": [b"x" * 100]}))
    time.sleep(0.01)
    assert run(["serve", path, "--dry-run"]) == 0
    assert "would be deleted by retention.ms" in capsys.readouterr().out
    assert run(["serve", path, "--once", "--json"]) == 0
    announced = json.loads(capsys.readouterr().out)
    assert not announced["deleted"]
    assert "the next round deletes them" in announced["notes"][0]
    assert run(["serve", path, "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["deleted"][0]["log_start"] == 5
    with sparklog.open(path) as log:
        assert log.offsets("t") == {0: (5, 5)}
    assert run(["serve", f"{path}-not-there"]) == 2


def test_remote_storage(service: type[FakeService], capsys: Capture) -> None:
    options = ["--remote", "s3://b/p", "--storage-options", '{"endpoint_url": "http://h:1"}']
    assert run(["serve", "p", *options, "--once"]) == 0
    assert service.calls[1] == ("s3://b/p", {"endpoint_url": "http://h:1"})
    assert run(["serve", "p", "--storage-options", "endpoint_url"]) == 2
    assert "is not a JSON object" in capsys.readouterr().err


def test_a_real_round_with_remote_storage(tmp_path: Path, capsys: Capture) -> None:
    path, bucket = str(tmp_path / "log"), tmp_path / "bucket"
    with sparklog.open(path, "rw") as log:
        log.create_topic(
            "t", config={"internal.segment.bytes": "200", "remote.storage.enable": True}
        )
        for _ in range(5):
            log.append("t", pa.table({"value": [b"x" * 100]}))
    assert run(["serve", path, "--remote", f"file://{bucket}", "--once", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["uploaded"]) == 4
    assert len(list(bucket.rglob("*.manifest"))) == 4
    assert run(["serve", path, "--once"]) == 0  # it is kept with the log
    assert "nothing to do" in capsys.readouterr().out


def test_a_preview_as_json(service: type[FakeService], capsys: Capture) -> None:
    assert run(["serve", "p", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rolled": 1}
    assert service.calls[1:] == [("run_once", True), "close"]


def test_an_error_is_one_line(service: type[FakeService], capsys: Capture) -> None:
    service.failure = LogLockedError("somebody holds it:\n  process 7")
    assert run(["serve", "p", "--once"]) == 1
    assert capsys.readouterr().err == "Error: somebody holds it: process 7\n"
    assert service.calls[-1] == "close"


@pytest.mark.parametrize("as_json", [False, True])
def test_serving_tells_each_round_that_deleted_something(
    as_json: bool, service: type[FakeService], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """One line a round; none for a round without copies and deletions."""
    segments = tuple(Expired(n, n + 1, 1 << 20, "retention.ms", "") for n in range(2))
    report = Report(path="p", time_ms=0)
    report.notes.append("nothing but a note")
    busy = Report(path="p", time_ms=0)
    busy.uploaded.append(Uploaded(topic="t", partition=0, base=0, end=5, bytes=100))
    busy.deleted.append(Deleted(topic="t", partition=0, segments=segments, log_start=2))

    def start(self: FakeService) -> FakeService:
        for each in (report, busy):
            self.on_round(each)  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGTERM)
        return self

    monkeypatch.setattr(FakeService, "__enter__", start)
    assert run(["serve", "p", *(["--json"] if as_json else [])]) == 0
    said = capsys.readouterr()
    if as_json:
        (line,) = [json.loads(s) for s in said.out.splitlines() if '"round"' in s]
        assert line["done"]["segments deleted"] == {"count": 2, "bytes": 2 << 20}
        return
    assert [line for line in said.err.splitlines() if line.startswith("p: ")] == [
        "p: segments copied to remote storage: 1 (100 B), segments deleted: 2 (2.0 MiB)"
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serving_until_a_signal(
    number: signal.Signals, service: type[FakeService], capsys: Capture
) -> None:
    before = signal.getsignal(number)

    def end() -> None:  # as soon as the command is ready for it: before, it would end the tests
        until(lambda: "start" in service.calls and signal.getsignal(number) is not before)
        os.kill(os.getpid(), number)

    ending = threading.Thread(target=end)
    ending.start()
    assert run(["serve", "p"]) == 0
    ending.join()
    assert service.calls == [("p", {}), "start", "close"]
    assert capsys.readouterr().err == "serving p\nstopped p\n"
    assert signal.getsignal(number) is before
