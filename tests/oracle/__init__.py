"""Kafka's own storage code as a judge of a partition directory, in one warm JVM.

    oracle.open(directory, clean=False).end      # what a broker would make of it
    oracle.dump("--files", path, "--print-data-log")

Every call works on a copy; the directory stays as it is. See LogOracle.java.
"""

import base64
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import jars

SOURCE = Path(__file__).with_name("LogOracle.java")


class OracleError(Exception):
    """Kafka's code threw; the text is Java's class and message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as Kafka reads it; `timestamp` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A partition as Kafka loads it.

    `batches` have the keys segment, position, size, magic, base, last, count, codec,
    timestamp_type, max_timestamp, horizon, leader_epoch, producer_id, producer_epoch,
    base_sequence, last_sequence, transactional, control; `producers` id, epoch, first_sequence,
    last_sequence, first_offset, last_offset, batches, coordinator_epoch, last_timestamp,
    txn_first_offset; `aborted` is (producer id, first, last, last stable offset); `epochs` is
    (epoch, start offset). `changed`, `created` and `removed` are file names: what loading and
    closing did to the directory. `records` is empty unless asked for; `count` is their number.
    """

    start: int
    end: int
    lso: int
    size: int
    count: int
    segments: list[int]
    batches: list[dict[str, Any]]
    records: list[Record]
    epochs: list[tuple[int, int]]
    producers: list[dict[str, Any]]
    aborted: list[tuple[int, int, int, int]]
    changed: list[str]
    created: list[str]
    removed: list[str]
    next_dirty: int | None = None

    @property
    def untouched(self) -> bool:
        """Whether Kafka left every file as it found it."""
        return not (self.changed or self.created or self.removed)


class Oracle:
    """One JVM, started at the first call; calls take milliseconds. Not thread-safe."""

    def __init__(self) -> None:
        class_path = jars.compiled(SOURCE, jars.kafka_jars())
        self._command = [jars.java(), "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        self._command += ["-cp", class_path, "LogOracle"]
        self._process: subprocess.Popen[str] | None = None

    def open(
        self,
        directory: str | os.PathLike[str],
        *,
        clean: bool = True,
        records: bool = False,
        config: Mapping[str, object] | None = None,
        log_start: int = 0,
        recovery_point: int = 0,
        now_ms: int | None = None,
    ) -> Opened:
        """Load after a clean or an unclean stop, walk and check every batch, close.

        `now_ms` is the clock that expires producers: those idle for 25 days are forgotten.
        `config` must be the topic's own where indexes are to be compared.
        """
        return _opened(
            self.call(
                "open",
                dir=directory,
                clean=clean,
                records=records,
                config=config,
                log_start=log_start,
                recovery_point=recovery_point,
                now=now_ms,
            )
        )

    def clean(
        self,
        directory: str | os.PathLike[str],
        *,
        now_ms: int,
        first_dirty: int = 0,
        config: Mapping[str, object] | None = None,
    ) -> Opened:
        """Run Kafka's log cleaner once; return what remains, with `next_dirty`."""
        config = {"cleanup.policy": "compact", **(config or {})}
        answer = self.call(
            "clean", dir=directory, now=now_ms, first_dirty=first_dirty, config=config
        )
        return _opened(answer)

    def retain(
        self,
        directory: str | os.PathLike[str],
        *,
        now_ms: int,
        config: Mapping[str, object],
        cleaning: bool = False,
    ) -> Opened:
        """Run Kafka's retention once; return what remains. `cleaning`: the cleaner runs before."""
        answer = self.call("retain", dir=directory, now=now_ms, config=config, cleaning=cleaning)
        return _opened(answer)

    def time(
        self, directory: str | os.PathLike[str], times: Iterable[int]
    ) -> list[tuple[int, int] | None]:
        """Look timestamps (ms) up: (offset, timestamp) of each, or None past the end."""
        found = self.call("time", dir=directory, times=list(times))["found"]
        return [None if hit is None else (hit[0], hit[1]) for hit in found]

    def dump(self, *arguments: str | os.PathLike[str]) -> str:
        """Run kafka-dump-log; return its output and, after it, what it complains of."""
        answer = self.call("dump", args=[os.fspath(a) for a in arguments])
        if answer["status"]:
            raise OracleError(answer["err"])
        return str(answer["out"] + answer["err"])

    def config(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Check topic configs with Kafka's LogConfig; return all values as it reads them."""
        return dict(self.call("config", config=values)["values"])

    def call(self, command: str, **request: Any) -> dict[str, Any]:
        """Send one request. Raises: OracleError with what Kafka's code threw."""
        if "dir" in request:
            request["dir"] = os.path.abspath(request["dir"])
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"cmd": command, **request}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.close()
            raise OracleError("the JVM died")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer

    def close(self) -> None:
        """End the JVM; the next call starts another."""
        if self._process is not None:
            process, self._process = self._process, None
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        return self._process


def _opened(answer: dict[str, Any]) -> Opened:
    answer["records"] = [
        Record(
            offset=offset,
            timestamp=timestamp,
            key=_raw(key),
            value=_raw(value),
            headers=tuple((name, _raw(data)) for name, data in headers),
        )
        for offset, timestamp, key, value, headers in answer["records"]
    ]
    for name in ("epochs", "aborted"):
        answer[name] = [tuple(row) for row in answer[name]]
    for name in ("changed", "created", "removed"):
        answer.setdefault(name, [])
    return Opened(**answer)


def _raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
