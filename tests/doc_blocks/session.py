"""A page's blocks, run in their order in a directory of the page's own."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import unittest
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparklog.cli.app import run as run_sparklog
from tests.doc_blocks import pages
from tests.doc_blocks.pages import Block
from tests.doc_blocks.shown import alike, difference
from tests.ports import free_ports

PORTS: Final = ("9092", "9093", "9404", "8080", "8443")  # Kafka, Prometheus, pages; with TLS
COLUMNS: Final = "100"
COMMAND_SECONDS_MAX: Final = 240
_PROMPT = "$ "


class Wrong(AssertionError):
    """A page says what isn't so; the text names it and its line."""


@dataclass
class Session:
    """One run of one page."""

    page: Path
    directory: Path
    bucket: str = ""  # what stands for s3://bucket
    environment: dict[str, str] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)
    write: bool = False
    in_process: bool = True  # simple commands of sparklog, without a process each
    spark_in_tests: bool = True  # whether tests that a page shows may start a session
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        ports = [str(port) for port in free_ports(len(PORTS))]
        self._here = {
            "/data/": f"{self.directory}/data/",
            "/tmp/tour": f"{self.directory}/tour",
            "/etc/sparklog/": f"{self.directory}/sparklog/",
            **({"s3://bucket": self.bucket} if self.bucket else {}),
        }
        self._ports = dict(zip(PORTS, ports, strict=True))
        (self.directory / "data").mkdir()
        self.environment |= {"COLUMNS": COLUMNS, "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC"}
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._printed, self._exit = "", 0
        self._tests: list[Path] = []
        self._hidden: list[str] = []  # since a block that is shown and no test: for tests
        self._background: list[subprocess.Popen[bytes]] = []
        self._edits: list[tuple[int, int, str]] = []

    def run(self) -> None:
        """Run all of it. Raises Wrong; what a block raises."""
        before = Path.cwd(), dict(os.environ)
        os.environ.update(self.environment)
        os.chdir(self.directory)
        try:
            for example in pages.parsed(self.page):
                if isinstance(example.parsed, Block):
                    example.region.evaluator = lambda each: self._block(each.parsed)
                try:
                    example.evaluate()
                except unittest.SkipTest as reason:
                    self.left_out.append(f"{self.page.name}:{example.line}: {reason}")
            self._run_tests()
        finally:
            self._end()
            os.chdir(before[0])
            os.environ.clear()
            os.environ.update(before[1])
            if self._edits:
                self._rewrite()

    def _block(self, block: Block) -> None:
        run = {
            "python": self._python, "output": self._output, "console": self._console,
            "sh": self._commands, "file": self._file, "exit": self._expect,
        }.get(block.kind)  # fmt: skip
        if run is not None:
            run(block)

    # --- Python ----------------------------------------------------------------------------------

    def _python(self, block: Block) -> None:
        source = self._local(block.text)
        tree = ast.parse(source)
        if any(_is_test(node) for node in tree.body):
            self._tests.append(self.directory / f"test_line_{block.line}.py")
            self._tests[-1].write_text("".join([*self._hidden, source]))
            return
        self._hidden = [*self._hidden, source] if block.hidden else []
        printed = io.StringIO()
        code = compile("\n" * (block.line - 1) + source, str(self.page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(printed):
            exec(code, self.namespace)
        if not block.hidden:
            self._printed = printed.getvalue()

    def _output(self, block: Block) -> None:
        self._compare(block.text, self._printed, block.at, block.line)

    def _file(self, block: Block) -> None:
        path = self.directory / self._local(block.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._local(block.text))

    def _run_tests(self) -> None:
        """Tests that the page shows, as pytest runs a reader's own."""
        if self._tests:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            command += ["--hypothesis-profile", "ci"]  # the same examples, however slow the machine
            command += [] if self.spark_in_tests else ["-k", "not spark_pipeline"]
            done = subprocess.run(
                [*command, *map(str, self._tests)], cwd=self.directory, capture_output=True,
                text=True, timeout=COMMAND_SECONDS_MAX * 2,
            )  # fmt: skip
            if done.returncode:
                raise Wrong(f"{self.page}: its tests fail\n{done.stdout[-5000:]}{done.stderr}")

    # --- commands --------------------------------------------------------------------------------

    def _expect(self, block: Block) -> None:
        self._exit = int(block.text)

    def _commands(self, block: Block) -> None:
        commands = _commands(block.text.splitlines(keepends=True))
        for n, (command, _, _) in enumerate(commands):
            self._command(command, last=n + 1 == len(commands), line=block.line)
        self._exit = 0

    def _console(self, block: Block) -> None:
        lines = block.text.splitlines(keepends=True)
        starts = [n for n, line in enumerate(lines) if line.startswith(_PROMPT)]
        if not starts or starts[0] != 0:
            raise Wrong(f"{self.page}:{block.line}: a console block begins with `$ `")
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            ((command, taken, _),) = _commands(
                [lines[start].removeprefix(_PROMPT), *lines[start + 1 : end]], once=True
            )
            line = block.line + start
            printed = self._command(command, last=end == len(lines), line=line)
            at = block.at + sum(len(each) for each in lines[: start + taken])
            said = "".join(lines[start + taken : end])
            if said or not command.rstrip().endswith("&"):  # it may say something later
                self._compare(said, printed, at, line)
        self._exit = 0

    def _command(self, command: str, *, last: bool, line: int) -> str:
        words, plain = re.sub(r"\s+# .*$", "", self._local(command.strip())), None
        if words.endswith("&"):
            return self._start(words.removesuffix("&"))
        if self.in_process and not re.search(r"[|&;<>$`*?~\\{}!\n]", words):
            plain = shlex.split(words, comments=True)
        if plain and plain[0] == "sparklog" and "serve" not in plain[1:2]:
            code, printed = _in_process(plain[1:])
        else:
            code, printed = self._in_shell(words)
        if code != (self._exit if last else 0):
            raise Wrong(f"{self.page}:{line}: exit code {code} of\n  {words}\n{printed[-3000:]}")
        return printed

    def _in_shell(self, words: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", words], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=COMMAND_SECONDS_MAX,
        )  # fmt: skip
        return done.returncode, done.stdout

    def _start(self, words: str) -> str:
        """Start it beside the rest, and wait for the ports that it is told; return what it says."""
        log = self.directory / f"background-{len(self._background)}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {words}"], stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._background.append(process)
        until = time.monotonic() + COMMAND_SECONDS_MAX
        for port in (port for port in self._ports.values() if port in words):
            while process.poll() is None and not _answers(int(port)):
                if time.monotonic() > until:
                    raise Wrong(f"{words}: nothing listens on {port}\n{log.read_text()}")
                time.sleep(0.05)
        if process.poll():
            raise Wrong(f"{words}: exit code {process.returncode}\n{log.read_text()}")
        while not log.stat().st_size and time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
        return log.read_text()

    def _end(self) -> None:
        for process in self._background:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(240)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    # --- what is shown ---------------------------------------------------------------------------

    def _compare(self, said: str, printed: str, at: int, line: int) -> None:
        printed = self._as_shown(printed)
        if alike(said, printed):
            return
        if not self.write:
            raise Wrong(f"{self.page}:{line}: prints something else\n{difference(said, printed)}")
        self._edits.append((at, at + len(said), printed))

    def _local(self, text: str) -> str:
        """A block's text with the places and ports of this run."""
        for shown, here in self._here.items():
            text = text.replace(shown, here)
        return re.sub(r"\b\d{4}\b", lambda port: self._ports.get(port[0], port[0]), text)

    def _as_shown(self, printed: str) -> str:
        for shown, here in {**self._here, **self._ports}.items():
            printed = printed.replace(here, shown)
        lines = [line.rstrip() for line in printed.replace(f"{self.directory}/", "").splitlines()]
        while lines and not lines[-1]:
            lines.pop()
        width = max((len(line) for line in lines if line.strip("─ ")), default=0)
        lines = [line if line.strip("─ ") else line[:width] for line in lines]  # a shorter path
        return "".join(line + "\n" for line in lines)

    def _rewrite(self) -> None:
        text = self.page.read_text()
        for start, end, printed in sorted(self._edits, reverse=True):
            text = text[:start] + printed + text[end:]
        self.page.write_text(text)


def _is_test(node: ast.stmt) -> bool:
    name = getattr(node, "name", "")
    return name.startswith(("test_", "Test"))


def _commands(lines: list[str], *, once: bool = False) -> list[tuple[str, int, int]]:
    """Commands of a shell's lines, each with how many lines it and those before it take."""
    found, at = [], 0
    while at < len(lines) and not (once and found):
        end = at + 1
        while end < len(lines) and re.search(r"(\\|\||\{|EOF')\s*$", "".join(lines[at:end])):
            end += 1
        command = "".join(lines[at:end])
        if command.strip() and not command.startswith("#"):
            found.append((command, end, at))
        at = end
    return found


def _in_process(arguments: list[str]) -> tuple[int, str]:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, "utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run_sparklog(arguments)
    out.flush()
    return code, raw.getvalue().decode()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0
