"""Scala's answers: one plain JVM with sparklog's jar and no Spark session, asked by name.

    probe.call("crc32c", b"123456789")

What it can be asked is in scala/*.scala: an object of the file's name that extends `Operations`
(Probe.scala). A new file is found by itself; all are compiled once for each state of the sources.
"""

import hashlib
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark

from sparklog.jvm.jar import jar
from tests import jars

SOURCES = Path(__file__).with_name("scala")
OPENED = ("java.base/java.nio=ALL-UNNAMED", "java.base/sun.nio.ch=ALL-UNNAMED")  # as Spark does


class ProbeError(Exception):
    """Scala threw; the text is the exception's, with the top of its stack."""


class Probe:
    """The JVM; it starts at the first call. Not thread-safe.

    `memory`: how much, as JVM options. `prefix`: a command that runs the JVM (strace).
    `class_path`: directories and jars before all others, such as a connector of Hadoop.

    Raises (the constructor): jars.Unavailable if there is no Java; AssertionError, with the
        compiler's text, if the sources don't compile.
    """

    def __init__(
        self, *memory: str, prefix: Sequence[str] = (), class_path: Sequence[str] = ()
    ) -> None:
        java = jars.java()
        classes = os.pathsep.join((*class_path, compiled(java, jar())))
        names = [path.stem for path in sorted(SOURCES.glob("*.scala")) if path.stem != "Probe"]
        self._command = [*prefix, java, *(memory or ("-Xmx1g",)), "-XX:+UseSerialGC", "-Xss4m"]
        self._command += [f"--add-opens={opened}" for opened in OPENED]
        self._command += ["-cp", classes, "sparklog.probe.Probe", *names]
        self._process: subprocess.Popen[bytes] | None = None
        self._said: Any = None

    def call(self, operation: str, data: bytes | bytearray = b"") -> bytes:
        """The operation's answer. Raises: ProbeError: it threw, or the JVM died."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        name = operation.encode()
        try:
            process.stdin.write(struct.pack(">i", len(name)) + name + struct.pack(">i", len(data)))
            process.stdin.write(data)
            process.stdin.flush()
        except BrokenPipeError:
            raise ProbeError(self._last_words()) from None
        head = process.stdout.read(5)
        if len(head) < 5:
            raise ProbeError(self._last_words())
        status, size = struct.unpack(">Bi", head)
        answer = process.stdout.read(size)
        if status:
            raise ProbeError(f"{operation}: {answer.decode()}")
        return answer

    @property
    def pid(self) -> int:
        """The JVM's; it must have been called."""
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """End the JVM; the next call starts another."""
        if self._process is not None:
            process, self._process = self._process, None
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
            process.wait()
            self._said.close()

    def _start(self) -> subprocess.Popen[bytes]:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the JVM
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        return self._process

    def _last_words(self) -> str:
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        self.close()
        return f"the JVM died: {said[-2000:]}"


def compiled(java: str, jar: str) -> str:
    """Compile scala/*.scala against sparklog's jar; return the class path to run them with."""
    sources = sorted(SOURCES.glob("*.scala"))
    stamp = hashlib.sha256(b"".join(s.read_bytes() for s in sources) + jar.encode()).hexdigest()
    directory = jars.cache() / f"probe-{stamp[:12]}"
    spark = f"{Path(pyspark.__file__).parent / 'jars'}/*"

    def build(target: Path) -> None:
        options = ["-usejavacp", "-nowarn", "-d", str(target)]
        command = [java, "-cp", os.pathsep.join((jar, spark)), "scala.tools.nsc.Main", *options]
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    jars.once(directory, build)
    return os.pathsep.join((str(directory), jar, spark))


def pack(parts: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """Byte strings one after the other, each after its length (i32): what `bytesFrom` reads."""
    out = bytearray()
    for part in parts:
        out += struct.pack(">i", len(part))
        out += part
    return bytes(out)


def unpack(data: bytes) -> Iterator[bytes]:
    """The byte strings that `bytesTo` wrote one after the other."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at + 4 : at + 4 + size]
        at += 4 + size
