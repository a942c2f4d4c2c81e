"""What the kernel is asked to do: the system calls of a program, in order, as strace sees them.

Elsewhere durability is tested on a simulated disk, which believes that a sync reaches the real one.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

WRITES = ("write", "pwrite64", "writev", "pwritev", "sendfile", "copy_file_range")
SYNCS = ("fsync", "fdatasync")
RENAMES = ("rename", "renameat", "renameat2")
LINKS = ("link", "linkat")
MARKS = "marks"
"""A program makes the directory `marks/NAME` below its root before each operation."""

_LINE = re.compile(r"^(?P<pid>\d+)\s+(?P<call>.*)$")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)$")
_CALL = re.compile(r"^(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)")
_DESCRIPTOR = re.compile(r"\d+<([^>]+)>")
_PATH = re.compile(r'"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Event:
    """A call that succeeded: `write`, `sync`, `rename` (of `path` to `target`) or `link`."""

    kind: str
    path: str
    target: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.path, self.target)))


def why_not() -> str:
    """Return why programs can't be traced here; "" if they can."""
    if shutil.which("strace") is None:
        return "strace isn't installed: `scripts/program strace` installs it"
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True)
    return f"strace can't trace here: {tried.stderr.strip()}" if tried.returncode else ""


def prefix(output: Path) -> list[str]:
    """Return what comes before a command whose calls go to `output`."""
    names = ",".join(("mkdir", "mkdirat", *WRITES, *SYNCS, *RENAMES, *LINKS))
    return ["strace", "-f", "-y", "-s", "0", "-e", f"trace={names}", "-e", "signal=none",
            "-o", str(output)]  # fmt: skip


def operations(output: Path, root: Path) -> dict[str, list[Event]]:
    """Return the events below `root` of each operation, by the name of its mark."""
    found: dict[str, list[Event]] = {}
    events: list[Event] = []  # what comes before the first mark belongs to no operation
    waiting: dict[str, str] = {}  # the first half of a call during which another thread ran
    for line in output.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        assert match, line
        pid, call = match["pid"], match["call"]
        if call.endswith("<unfinished ...>"):
            waiting[pid] = call.removesuffix("<unfinished ...>").rstrip()
            continue
        if resumed := _RESUMED.match(call):
            call = waiting.pop(pid) + resumed[1]
        if mark := re.search(rf'mkdir.*"{re.escape(str(root))}/{MARKS}/([^"]+)"', call):
            events = found.setdefault(mark[1], [])
        else:
            events.extend(_event(call, str(root)))
    return found


def _event(call: str, root: str) -> list[Event]:
    parsed = _CALL.match(call)
    if parsed is None or int(parsed["result"]) < 0:
        return []
    name, arguments = parsed["name"], parsed["arguments"]
    of = _PATH if name in RENAMES + LINKS else _DESCRIPTOR
    paths = of.findall(arguments)
    if not paths or not f"{paths[0]}/".startswith(f"{root}/"):
        return []
    names = [path.removeprefix(root).removeprefix("/") or "." for path in paths]
    if name in RENAMES:
        return [Event("rename", names[0], names[1])]
    if name in LINKS:
        return [Event("link", names[0], names[1])]
    return [Event("sync" if name in SYNCS else "write", names[0])]


def check_order(events: Sequence[Event], *steps: str) -> None:
    """Assert that the last event of each step comes after the last one of the step before.

    A step is an event's text, with * as in file names. Since the last ones are compared, nothing
    is written to a file once the sync that stands for it is done.
    """
    texts = [str(event) for event in events]
    told = "\n".join(texts)
    before, previous = -1, "the beginning"
    for step in steps:
        places = [n for n, text in enumerate(texts) if fnmatch(text, step)]
        assert places, f"no '{step}' in\n{told}"
        assert places[-1] > before, f"'{step}' isn't after '{previous}' in\n{told}"
        before, previous = places[-1], step
