"""The commands that are run on a damaged log, through sparklog's public calls and in process."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pytest

import sparklog
from sparklog.checkpoint.log_backed import lock
from sparklog.cli.app import run
from sparklog.errors import SparklogError
from sparklog.log import read_retry
from sparklog.log.log import Log
from sparklog.service import Service, log_verification, verify
from sparklog.service.health import examine
from sparklog.service.verification import store_verifier
from tests.damage.model import Actions, Failed, Place, Reading, Verdict

NEW_ROWS: Final = pa.table({"value": [b"appended"]})
_QUOTED: Final = re.compile(r"`sparklog ([^`]+)`")
_COLUMNS: Final = ["offset", "key", "value", "timestamp"]


def quoted(text: str) -> tuple[str, ...]:
    """Return the commands of sparklog that a text quotes."""
    return tuple(" ".join(found.split()) for found in _QUOTED.findall(text))


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """Let readers and verifiers look again at once, where they wait for a merge or a clean-up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock, "RELEASE_MS", 0)
        patch.setattr(read_retry, "RETRY_MS", 0)
        patch.setattr(log_verification, "PAUSE_MS", 0)
        patch.setattr(store_verifier, "PAUSE_MS", 0)
        yield


@contextlib.contextmanager
def _opened(path: str, mode: str = "r") -> Iterator[Log]:
    log = sparklog.open(path, mode=mode)
    try:
        yield log
    finally:
        log.close()


def open_r(path: str) -> None:
    """Open for reading, and ask for the topics and their offsets."""
    with _opened(path) as log:
        for topic in log.topics():
            log.offsets(topic)


def open_rw(path: str) -> None:
    """Open for writing."""
    with _opened(path, "rw"):
        pass


def read(path: str) -> Reading:
    """Return all records, topics' configs and groups' positions."""
    found: Reading = {}
    try:
        with _opened(path) as log:
            topics = log.topics()
            for name in topics:
                found[f"topic {name}"] = tuple(sorted(topics[name].config.to_dict().items()))
                for partition, offsets in log.offsets(name).items():
                    found[f"{name}-{partition}"] = _records(log, name, partition, offsets)
            _read_groups(log, found)
    except Exception as error:  # the judge tells sparklog's own from others
        found["log"] = failed(error)
    return found


def _records(
    log: Log, topic: str, partition: int, offsets: tuple[int, int]
) -> tuple[object, ...] | Failed:
    try:
        table = log.read(topic, partitions=[partition]).read_all().select(_COLUMNS)
    except Exception as error:
        return failed(error)
    return offsets, *(tuple(row.values()) for row in table.to_pylist())


def _read_groups(log: Log, found: Reading) -> None:
    try:
        table = log.readers().select(["kind", "group", "topic", "partition", "offset"])
    except Exception as error:
        found["groups"] = failed(error)
        return
    rows = table.to_pylist()
    if any(row["kind"] == "damaged" for row in rows):
        # A row of a table, which has no room for advice: verify has it.
        found["groups"] = Failed("damaged: shown in the table of readers; run verify")
    else:
        found["groups"] = tuple(tuple(row.values()) for row in rows)


def failed(error: Exception) -> Failed:
    """Return what a call raised, as a table has it."""
    return Failed(f"{type(error).__name__}: {error}", not isinstance(error, SparklogError))


def append(path: str) -> Reading:
    """Append a record to t-0; returns the rows that a reader must see from now on."""
    with _opened(path, "rw") as log:
        log.append("t", NEW_ROWS, partition=0)
    return {"t-0": (b"appended",)}


def verified(path: str) -> Verdict:
    """Run `verify`."""
    return _verdict(path, repair=False)


def repaired(path: str) -> Verdict:
    """Run `verify --repair`."""
    return _verdict(path, repair=True)


def _verdict(path: str, *, repair: bool) -> Verdict:
    report = verify(path, repair)
    text = str(report)
    return Verdict("ok" if report.ok else "damage", text, quoted(text))


def health(path: str) -> Verdict:
    """Run `status`."""
    found = examine(path)
    commands = [check.command for check in found.wrong if check.command is not None]
    ours = [c.removeprefix("sparklog ") for c in commands if c.startswith("sparklog ")]
    writable = found.check("writable")
    is_unwritable = writable is not None and str(writable.level) == "red"
    text = "\n".join(f"{check.level}: {check.what}" for check in found.checks)
    return Verdict(str(found.level), text, (*ours, *quoted(text)), is_unwritable)


def service_round(path: str) -> Verdict:
    """Run one round of the service with everything that is due."""
    service = Service(path)
    try:
        report = service.run_once()
    finally:
        service.close()
    text = "\n".join(report.errors)
    return Verdict("errors" if report.errors else "ok", text, quoted(text))


def command(words: str, place: Place) -> tuple[int, str]:
    """Run a command of sparklog; returns its exit code and all that it printed.

    A command that is quoted without the log's path gets it at the end.
    """
    path, named = place.path, {"PATH": place.path, "URL": place.url}
    arguments = [named.get(word, word) for word in shlex.split(words)]
    if not any(path in word for word in arguments):
        arguments.append(path)
    if arguments[0] == "serve" and "--once" not in arguments:
        arguments.append("--once")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run(arguments)
    return code, out.getvalue()


ACTIONS: Final = Actions(
    open_r=open_r, open_rw=open_rw, read=read, append=append, verify=verified, repair=repaired,
    status=health, round=service_round,
)  # fmt: skip
