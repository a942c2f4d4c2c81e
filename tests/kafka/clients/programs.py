"""Clients that are programs of their own: Go's and Node's libraries, kcat."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from tests import jars
from tests.kafka.clients.client import (
    Client,
    ClientFailed,
    Header,
    Record,
    Task,
    headers_by_name,
    records,
)

HERE = Path(__file__).parent
BUILD_SECONDS_MAX = 600


def _stamp(folder: Path) -> str:
    """A hash over all that a program is made of."""
    parts = sorted(path for path in folder.iterdir() if path.is_file())
    text = b"".join(part.name.encode() + part.read_bytes() for part in parts)
    return hashlib.sha256(text).hexdigest()[:12]


def _needed(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        hint = "; `scripts/program kcat` installs it" if tool == "kcat" else ""
        raise jars.Unavailable(f"no {tool} in PATH{hint}")
    return found


def _build(what: str, *command: str, cwd: Path) -> None:
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=BUILD_SECONDS_MAX,
    )  # fmt: skip
    if done.returncode:
        raise jars.Unavailable(f"{what}: {done.stderr.strip()[-300:]}")


def go_program() -> str:
    """Return the path of the program with Go's clients, built once for each state of its source.

    Raises: jars.Unavailable: no go, or its proxy doesn't answer.
    """
    source = HERE / "go"
    directory = jars.cache() / f"go-clients-{_stamp(source)}"

    def build(target: Path) -> None:
        go = _needed("go")
        what = "go can't bring or build the clients"
        quickly = "-gcflags=all=-N -l"  # the compiler optimizes nothing
        _build(what, go, "build", quickly, "-o", str(target), ".", cwd=source)

    jars.once(directory, build)
    return str(directory / "clients")


def franz_go_tests() -> str:
    """Return the path of franz-go's own tests as a program, built once for each release of it.

    Raises: jars.Unavailable, as `go_program`.
    """
    source = HERE / "go"
    directory = jars.cache() / f"franz-go-tests-{_stamp(source)}"

    def build(target: Path) -> None:
        package = "github.com/twmb/franz-go/pkg/kgo"
        command = (_needed("go"), "test", "-c", "-o", str(target / "kgo"), package)
        _build("go can't bring or build franz-go's tests", *command, cwd=source)

    jars.once(directory, build)
    return str(directory / "kgo")


def node_program() -> tuple[str, str]:
    """Return node and the program with its clients, brought once for each state of its source.

    Raises: jars.Unavailable: no node, no npm, or its registry doesn't answer.
    """
    node = _needed("node")
    source = HERE / "node"
    directory = jars.cache() / f"node-clients-{_stamp(source)}"

    def build(target: Path) -> None:
        shutil.copytree(source, target, dirs_exist_ok=True)
        npm = _needed("npm")
        flags = ("--no-audit", "--no-fund", "--ignore-scripts")
        _build("npm can't bring the clients", npm, "ci", *flags, cwd=target)

    jars.once(directory, build)
    return node, str(directory / "main.mjs")


def _run(command: list[str], task: Task, given: bytes = b"") -> bytes:
    seconds = task.timeout_ms / 1000 + 20
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired as late:
        said = (late.stderr or b"")[-2000:]
        raise ClientFailed(f"{command[0]}: still running; {said!r}") from None
    if done.returncode:
        raise ClientFailed(done.stderr.decode(errors="replace")[-3000:])
    return done.stdout


class Program(Client):
    """A library behind a program that takes a task as JSON and prints JSON."""

    def command(self) -> list[str]:
        """Return what runs it."""
        raise NotImplementedError

    def prepare(self) -> None:
        self.command()

    def run(self, task: Task) -> list[Record]:
        lines = _run([*self.command(), self.name, json.dumps(task.json())], task).splitlines()
        return records(map(json.loads, lines))


class GoClient(Program):
    """A library of Go."""

    def command(self) -> list[str]:
        return [go_program()]


class FranzGo(GoClient):
    """github.com/twmb/franz-go."""

    name = "franz-go"


class KafkaGo(GoClient):
    """github.com/segmentio/kafka-go."""

    name = "kafka-go"
    idempotent = False
    transactions = ()  # it shows markers and what was aborted

    def knows(self, topic: str, committed: bool) -> bool:
        """It takes a log append time for a create time."""
        return topic != "appendtime" and super().knows(topic, committed)

    def shown(self, record: Record) -> Record:
        headers = tuple((name, value or None) for name, value in record.headers)
        return replace(
            record, key=record.key or None, value=record.value or None, headers=headers
        )


class Sarama(GoClient):
    """github.com/IBM/sarama."""

    name = "sarama"


class NodeClient(Program):
    """A library of Node.js."""

    def command(self) -> list[str]:
        return list(node_program())


class KafkaJS(NodeClient):
    """kafkajs; snappy is a plugin, those for lz4 and zstd want a C++ compiler."""

    name = "kafkajs"
    reads = writes = ("none", "gzip", "snappy")
    tells_all_offsets = False

    def shown(self, record: Record) -> Record:
        return headers_by_name(record)

    def sent(self, record: Record) -> Record:
        """A name once, and with a value."""
        named = {name: value for name, value in record.headers if value is not None}
        return replace(record, headers=tuple(named.items()))


class Platformatic(NodeClient):
    """@platformatic/kafka; zstd wants Node 22, and it reads no snappy in xerial's blocks."""

    name = "platformatic"
    reads = ("none", "gzip", "lz4")
    writes = ("none", "gzip", "snappy", "lz4")
    transactions = (False,)  # it shows what was aborted
    tells_all_offsets = False

    def knows(self, topic: str, committed: bool) -> bool:
        """It takes a log append time for a create time."""
        return topic != "appendtime" and super().knows(topic, committed)

    def shown(self, record: Record) -> Record:
        """All headers without a name share a place in its map: the last value in the first one."""
        named: dict[object, Header] = {}
        for n, (name, value) in enumerate(record.headers):
            named[n if name else ""] = (str(name), value)
        return replace(record, headers=tuple(named.values()))


class Kcat(Client):
    """kcat, from the distribution: librdkafka of some years ago."""

    name = "kcat"
    _FORMAT: ClassVar = "%p %o %T %K %S \\x02%k%s%h\\x1e\\n"
    _LINE: ClassVar = re.compile(rb"(\d+) (\d+) (-?\d+) (-?\d+) (-?\d+) \x02")

    def prepare(self) -> None:
        _needed("kcat")

    def run(self, task: Task) -> list[Record]:
        level = "read_committed" if task.committed else "read_uncommitted"
        base = [_needed("kcat"), "-b", task.bootstrap, "-X", f"isolation.level={level}"]
        base += ["-X", "session.timeout.ms=120000", "-X", "socket.timeout.ms=120000"]
        read = ["-q", "-f", self._FORMAT]
        read += ["-X", "check.crcs=true", "-X", "auto.offset.reset=earliest"]
        where = ["-t", task.topic, "-p", str(task.partition)]
        if task.do == "consume":
            out = _run([*base, "-C", *where, "-o", str(task.start), "-e", *read], task)
            return list(self._parsed(out))
        if task.do == "group":
            count = ["-c", str(task.count)]
            out = _run([*base, *read, *count, "-G", task.group, task.topic], task)
            return list(self._parsed(out))
        if task.do == "time":
            ask = f"{task.topic}:{task.partition}:{task.timestamp}"
            out = _run([*base, "-Q", "-t", ask], task)
            return [Record(offset=int(out.split()[-1]))]
        for partition in {record.partition for record in task.records}:
            self._produce(base, task, partition)
        return []

    def _produce(self, base: list[str], task: Task, partition: int) -> None:
        mine = [r for r in task.records if r.partition == partition]
        lines = b"".join(
            b"%s\x1f%s\x1e" % (r.key or b"", r.value or b"") for r in mine
        )  # an empty one is null with -Z
        flags = ["-Z", "-K", "\x1f", "-D", "\x1e", "-z", task.compression]
        flags += ["-X", f"enable.idempotence={str(task.idempotent).lower()}", "-X", "acks=all"]
        flags += ["-X", "request.timeout.ms=120000"]
        where = ["-t", task.topic, "-p", str(partition)]
        _run([*base, "-P", *where, *flags], task, lines)

    def _parsed(self, out: bytes) -> Iterator[Record]:
        at = 0
        while found := self._LINE.match(out, at):
            partition, offset, timestamp, keys, values = map(int, found.groups())
            key_at = found.end()
            value_at = key_at + max(keys, 0)
            at = value_at + max(values, 0)
            end = out.index(b"\x1e\n", at)
            yield Record(
                partition=partition, offset=offset, timestamp=timestamp,
                key=out[key_at : key_at + keys] if keys >= 0 else None,
                value=out[value_at : value_at + values] if values >= 0 else None,
                headers=out[at:end].decode(),
            )  # fmt: skip
            at = end + 2
        if at != len(out):
            raise ClientFailed(f"kcat: no record at {out[at : at + 80]!r}")

    def shown(self, record: Record) -> Record:
        assert not isinstance(record.headers, str)
        text = ",".join(f"{k}={'NULL' if v is None else v.decode()}" for k, v in record.headers)
        return replace(record, headers=text)

    def sent(self, record: Record) -> Record:
        key, value = record.key or None, record.value or None
        return replace(record, key=key, value=value, headers=(), timestamp=None)
