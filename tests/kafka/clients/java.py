"""Kafka's own clients and command-line tools, in one warm JVM (java/KafkaClients.java)."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from tests import jars
from tests.kafka.clients.client import (
    TIMEOUT_MS,
    Client,
    ClientFailed,
    Record,
    Task,
    records,
)

SOURCE = Path(__file__).parent / "java" / "KafkaClients.java"
TOOLS = "org.apache.kafka.tools"


@dataclass(frozen=True, slots=True)
class Done:
    """How a tool ended."""

    status: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """What it printed."""
        return self.out.decode(errors="replace").splitlines()


class ClientJvm:
    """The JVM; a call at a time. Raises: jars.Unavailable: no JDK, or no jars."""

    def __init__(self) -> None:
        class_path = jars.compiled(SOURCE, jars.kafka_jars())
        self._process = subprocess.Popen(
            [
                jars.java(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path, "KafkaClients",
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request. Raises: ClientFailed with what was thrown."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise ClientFailed(f"the JVM died: {process.wait(240)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClientFailed(answer["error"])
        return answer

    def tool(
        self, main: str, *args: str, given: bytes = b"", timeout_ms: int = TIMEOUT_MS
    ) -> Done:
        """Run a tool by its main class; of one in Kafka's package of tools the rest of its name."""
        if not main.startswith(("org.", "kafka.")):
            main = f"{TOOLS}.{main}"
        answer = self.call(
            {
                "main": main, "args": list(args), "in": base64.b64encode(given).decode(),
                "timeout_ms": timeout_ms,
            }
        )  # fmt: skip
        return Done(answer["status"], base64.b64decode(answer["out"]), answer["err"])

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(240)
        assert self._process.stdout is not None
        self._process.stdout.close()


def process(main: str, *args: str, seconds_max: float = 240) -> Done:
    """Run one of Kafka's tools as a process of its own, for one that ends with its process."""
    command = [
        jars.java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", jars.kafka_jars(),
        f"{TOOLS}.{main}", *args,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=seconds_max)
    return Done(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


class Java(Client):
    """kafka-clients 4.1: KafkaConsumer, KafkaProducer."""

    name = "java"

    def __init__(self, jvm: ClientJvm) -> None:
        self._jvm = jvm

    def run(self, task: Task) -> list[Record]:
        return records(self._jvm.call(task.json())["records"])


class Console(Client):
    """kafka-console-consumer and -producer, kafka-get-offsets."""

    name = "console"
    _FIELDS: ClassVar = ("timestamp", "partition", "offset", "headers", "key", "value")
    _NEXT, _END = "\x1f|next|\x1f", "\x1e|end|\x1e\n"  # keys and values are any bytes
    _LINE: ClassVar = re.compile(
        rb"\x1f\|next\|\x1f".join(
            (rb"(?:CreateTime|LogAppendTime):(\d+)", rb"Partition:(\d+)", rb"Offset:(\d+)",
             rb"(.*?)", rb"(.*?)", rb"(.*?)\x1e\|end\|\x1e\n")
        ),
        re.DOTALL,
    )  # fmt: skip
    _NULL: ClassVar = b"\x11null\x11"

    def __init__(self, jvm: ClientJvm) -> None:
        self._jvm = jvm

    def _tool(self, main: str, *args: str, given: bytes = b"") -> Done:
        done = self._jvm.tool(main, *args, given=given)
        if done.status:
            raise ClientFailed(done.err[-3000:])
        return done

    def run(self, task: Task) -> list[Record]:
        server = ("--bootstrap-server", task.bootstrap)
        if task.do == "time":
            where = f"{task.topic}:{task.partition}"
            done = self._tool(
                "GetOffsetShell", *server, "--topic-partitions", where, "--time",
                str(task.timestamp),
            )  # fmt: skip
            last = done.lines[-1].rpartition(":")[2] if done.lines else ""
            return [Record(offset=int(last) if last else -1)]
        if task.do == "produce":
            self._produce(task)
            return []
        show = [f"print.{field}=true" for field in self._FIELDS]
        show += [f"key.separator={self._NEXT}", f"line.separator={self._END}"]
        show += ["headers.separator=,"]
        show += [f"null.literal={self._NULL.decode()}"]
        options = [part for one in show for part in ("--property", one)]
        level = "read_committed" if task.committed else "read_uncommitted"
        options += ["--isolation-level", level, "--max-messages", str(task.count)]
        options += ["--timeout-ms", "120000", "--topic", task.topic]
        if task.do == "group":
            options += ["--group", task.group, "--from-beginning"]
        else:
            options += ["--partition", str(task.partition), "--offset", str(task.start)]
        if task.protocol:
            options += ["--consumer-property", f"group.protocol={task.protocol}"]
        done = self._tool("consumer.ConsoleConsumer", *server, *options)
        seen = [self._record(found) for found in self._LINE.finditer(done.out)]
        if len(seen) != task.count:
            raise ClientFailed(f"{len(seen)} of {task.count}: {done.err[-2000:]}")
        return seen

    def _record(self, found: re.Match[bytes]) -> Record:
        timestamp, partition, offset, headers, key, value = found.groups()
        return Record(
            partition=int(partition), offset=int(offset), timestamp=int(timestamp),
            key=None if key == self._NULL else key, value=None if value == self._NULL else value,
            headers=headers.decode(),
        )  # fmt: skip

    def shown(self, record: Record) -> Record:
        assert not isinstance(record.headers, str)
        null = self._NULL.decode()
        text = ",".join(f"{k}:{null if v is None else v.decode()}" for k, v in record.headers)
        return replace(record, headers=text or "NO_HEADERS")

    def _produce(self, task: Task) -> None:
        """Lines: headers, key, value. It can't say which partition."""
        keys = ["parse.key=true", "parse.headers=true", "key.separator=\x1f"]
        keys += ["headers.delimiter=\x1d", "headers.separator=\x1c", "headers.key.separator=\x1b"]
        keys += [f"null.marker={self._NULL.decode()}"]
        options = [part for one in keys for part in ("--property", one)]
        options += ["--compression-codec", task.compression, "--timeout", "5"]
        options += ["--request-timeout-ms", "100000"]  # its own is 1500: a retry is there twice
        more = f"enable.idempotence={str(task.idempotent).lower()}"
        options += ["--producer-property", more, "--producer-property", "acks=all"]
        lines = []
        for record in task.records:
            assert not isinstance(record.headers, str)
            heads = b"\x1c".join(
                name.encode() + b"\x1b" + (self._NULL if value is None else value)
                for name, value in record.headers
            )
            key = self._NULL if record.key is None else record.key
            value = self._NULL if record.value is None else record.value
            lines.append((heads or self._NULL) + b"\x1d" + key + b"\x1f" + value + b"\n")
        done = self._tool(
            "ConsoleProducer", "--bootstrap-server", task.bootstrap, "--topic", task.topic,
            *options, given=b"".join(lines),
        )  # fmt: skip
        if "ERROR" in done.err:
            raise ClientFailed(done.err[-3000:])

    def sent(self, record: Record) -> Record:
        return replace(record, timestamp=None)
