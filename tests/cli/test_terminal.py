"""What a terminal obeys, in keys, values, headers, names: it is shown, and a pipe gets it whole."""

import contextlib
import io
import logging
import os
import pty
import subprocess
import sys

import pyarrow as pa
import pytest
from rich.text import Text

import sparklog
from sparklog.cli.findings import print_health
from sparklog.cli.output import console, print_table
from sparklog.cli.terminal import RowFormatter, TerminalStream, one_row, visible
from sparklog.service.health import Check, Health, Level

CLEAR = "\x1b[2J"
EVIL = f"{CLEAR}\x1b]52;c;cm0gLXJm\x07\r\x9b2J\u202ex\x08\x7f"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log whose records hold what a terminal obeys."""
    path = str(tmp_path_factory.mktemp("terminal") / "log")
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t")
        held = pa.array([[{"key": EVIL, "value": EVIL.encode()}]], headers)
        log.append("t", pa.table({"key": [EVIL], "value": [EVIL + "\xe4"], "headers": held}))
    return path


def command(path: str, name: str) -> list[str]:
    segment = f"{path}/t-0/{0:020d}.log"
    return {
        "consume": ["consume", path, "--topic", "t", "--property", "print.key=true",
                    "--property", "print.headers=true"],
        "json": ["consume", path, "--topic", "t", "--json"],
        "dump": ["dump-log", "--files", segment, "--print-data-log"],
        "dump-json": ["dump-log", "--files", segment, "--print-data-log", "--json"],
        "wrong": ["consume", f"{path}{EVIL}", "--topic", "t"],
    }[name]  # fmt: skip


def on_terminal(arguments: list[str]) -> str:
    """What a terminal gets of a command, its streams all together."""
    ours, theirs = pty.openpty()
    called = [sys.executable, "-c", "from sparklog.cli import main; main()", *arguments]
    with subprocess.Popen(called, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        found = b""
        with contextlib.suppress(OSError):  # as Linux tells the end of a terminal
            while part := os.read(ours, 1 << 16):
                found += part
    os.close(ours)
    return found.decode()


@pytest.mark.parametrize("name", ["consume", "wrong", *(
    pytest.param(n, marks=pytest.mark.deep) for n in ("json", "dump", "dump-json")
)])  # fmt: skip
def test_a_terminal_shows_and_does_not_obey(path: str, name: str) -> None:
    found = on_terminal(command(path, name)).replace("\r\n", "\n")
    assert "2J" in found
    for told in (CLEAR, "\x1b]52", "\x07", "\x08", "\r", "\x9b", "\u202e", "\x7f"):
        assert told not in found


def test_a_pipe_gets_it_whole(path: str) -> None:
    called = [sys.executable, "-c", "from sparklog.cli import main; main()"]
    called += ["consume", path, "--topic", "t"]
    found = subprocess.run(called, capture_output=True, check=True).stdout
    assert found == f"{EVIL}\xe4\n".encode()


def test_every_character() -> None:
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x11000))))
    found = visible(text)
    assert len(found) == len(text)
    changed = {ord(a) for a, b in zip(text, found, strict=True) if a != b}
    assert changed == {
        *range(9), *range(11, 32), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    }  # fmt: skip
    assert not any(c.isspace() and c != " " for c in one_row("a\nb\tc\r\x0b\x1c\x85d"))


def test_a_terminals_stream() -> None:
    raw = io.BytesIO()
    plain = io.TextIOWrapper(raw, encoding="utf-8")
    stream = TerminalStream(plain)
    assert stream.write(f"{CLEAR}\u00e4\n") == 6
    stream.flush()
    plain.write(CLEAR)
    plain.flush()
    assert raw.getvalue().decode() == f"\u241b[2J\u00e4\n{CLEAR}"


def test_nobody_writes_a_line_into_the_log_of_a_server() -> None:
    made = logging.LogRecord("x", 20, "f", 1, "no topic %s", (f"a\nERROR b{CLEAR}",), None)
    found = RowFormatter("%(levelname)s %(message)s").format(made)
    assert found == "INFO no topic a\u240aERROR b\u241b[2J"


def test_names_stay_in_their_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Of groups' members, whose ids are their clients' to choose, and of what health says."""
    print_table(["group", "client"], [["g", f"c\nother  x{CLEAR}"]])
    assert "g       c\u240aother  x\u241b[2J" in capsys.readouterr().out
    console().print(Text(f"x{CLEAR}"))
    assert capsys.readouterr().out == "x\u241b[2J\n"
    check = Check("readers", Level.RED, f"[red]x[/] lags\ngreen: all is well{CLEAR}", "run\nme")
    print_health(Health("p", 0, "log", (check,)))
    found = capsys.readouterr().out
    assert len(found.splitlines()) == 3
    assert "[red]x[/]" in found
    assert CLEAR not in found
