"""The endpoint and the broker, a process each, on the same partitions; and what they cost."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kafka.broker import Broker, JarEngine
from tests.ports import free_port

_TICKS = os.sysconf("SC_CLK_TCK")
_START_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Server:
    """A process that serves the partitions. `name`: for the table."""

    name: str
    bootstrap: str
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_bytes(self) -> int:
        """Resident memory now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )

    def peak_bytes(self) -> int:
        """Most resident memory since it began, or since `reset_peak`."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise AssertionError("no VmHWM")

    def reset_peak(self) -> None:
        """Count `peak_bytes` from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@contextlib.contextmanager
def endpoint(log: Path, *, options: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Serve a log dir by `sparklog serve --kafka`."""
    port = free_port()
    command = [sys.executable, "-m", "sparklog.cli", "serve", str(log)]
    command += ["--kafka", f"127.0.0.1:{port}"]
    for name, value in (options or {}).items():
        command += ["--kafka-option", f"{name}={value}"]
    output = log.with_suffix(".serve.log")
    with output.open("ab") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        until = time.monotonic() + _START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no endpoint: {output.read_text()[-2000:]}")
            time.sleep(0.05)
        yield Server("endpoint", f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(30)


class _Engine(JarEngine):
    """A broker as it is run for good: with both compilers, and room."""

    def _command(self, main: str, *arguments: str) -> list[str]:
        flags = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"]
        flags.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        return [self._java, *flags, "-cp", self._class_path, main, *arguments]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


@dataclass(frozen=True, slots=True)
class RealBroker:
    """A broker of Kafka's jars. `server` is it as it runs now."""

    broker: Broker
    engine: _Engine

    @property
    def server(self) -> Server:
        return Server("broker", self.broker.bootstrap.replace("localhost", "127.0.0.1"),
                      self.engine.pid)  # fmt: skip

    def take(self, log: Path, topics: Iterable[str], partitions: int) -> None:
        """Serve copies of a log dir's topics."""
        names = list(topics)
        for topic in names:
            self.broker.create_topic(topic, partitions)
        self.broker.stop()
        for topic in names:
            for p in range(partitions):
                self.broker.adopt(log / f"{topic}-{p}")
        self.broker.start()


@contextlib.contextmanager
def real_broker(home: Path) -> Iterator[RealBroker]:
    """Run a broker whose files lie under `home`. Raises: jars.Unavailable."""
    log_dir = home / "kafka-logs"
    log_dir.mkdir(parents=True)
    port = free_port()
    engine = _Engine(home, log_dir, port)
    made = Broker(log_dir, port, engine)
    try:
        made.start()
        yield RealBroker(made, engine)
    finally:
        made.kill()
