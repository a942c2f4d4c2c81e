"""A real Kafka 4.1 broker, one KRaft node: from Maven's jars, or from the official image.

    broker.create_topic("t", retention_ms=-1); broker.stop()
    broker.adopt(log_dir / "t-0"); broker.start()
    broker.consume("t")

A broker refuses a log.dir with directories that it doesn't know, and renames partitions to
-stray whose topic id isn't the cluster's: so `adopt` swaps all files but partition.metadata.
"""

import base64
import contextlib
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests import jars
from tests.docker import container_class
from tests.ports import free_port
from tests.waiting import until

IMAGE = "apache/kafka:4.1.0"


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a librdkafka consumer sees it; `timestamp` in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Engine(Protocol):
    """How the broker's process is run."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """End it cleanly (SIGTERM) and wait."""

    def kill(self) -> None:
        """End it at once (SIGKILL)."""

    def log(self) -> str:
        """What it printed, for failures."""


class Broker:
    """One node; `log_dir` is its only log.dir, `bootstrap` its address."""

    def __init__(self, log_dir: Path, port: int, engine: Engine) -> None:
        self.log_dir, self.engine = log_dir, engine
        self.bootstrap = f"localhost:{port}"
        self.running = False

    def start(self) -> None:
        """Start it and wait until it serves metadata."""
        self.engine.start()
        self.running = True

        def answers() -> bool:
            with contextlib.suppress(confluent_kafka.KafkaException):
                return bool(self.admin().list_topics(timeout=60))
            return False

        until(answers, "a broker", state=lambda: self.engine.log()[-3000:], pause_s=0.2)

    def stop(self) -> None:
        """Stop it cleanly; the logs are then closed."""
        if self.running:
            self.running = False
            self.engine.stop()

    def kill(self) -> None:
        """Stop it by SIGKILL."""
        if self.running:
            self.running = False
            self.engine.kill()

    def admin(self) -> AdminClient:
        """Return a client for topics."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, **config: object) -> None:
        """Create a topic; `config` has Kafka's keys with underscores. It keeps its records."""
        keys = {"retention.ms": "-1"} | {k.replace("_", "."): str(v) for k, v in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=keys)
        admin = self.admin()  # its futures die with it
        admin.create_topics([topic])[name].result(240)
        until(
            lambda: all((self.log_dir / f"{name}-{p}").is_dir() for p in range(partitions)),
            f"directories of {name}",
        )  # fmt: skip

    def adopt(self, source: Path, *, topic_partition: str | None = None) -> None:
        """Put the files of a partition directory in the place of the broker's own (stopped)."""
        assert not self.running, "stop the broker first"
        target = self.log_dir / (topic_partition or source.name)
        for path in target.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in source.iterdir():
            if path.name != "partition.metadata":
                shutil.copy2(path, target / path.name)
                (target / path.name).chmod(0o666)

    def producer(self, **config: object) -> confluent_kafka.Producer:
        """Return a librdkafka producer; `config` has its keys with underscores."""
        keys: dict[str, Any] = {k.replace("_", "."): v for k, v in config.items()}
        return confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, **keys})

    def consume(
        self, topic: str, partition: int = 0, *, isolation: str = "read_uncommitted"
    ) -> list[Seen]:
        """Read a partition from its start to its present end."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": uuid.uuid4().hex,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
            }
        )
        seen: list[Seen] = []
        try:
            start = confluent_kafka.OFFSET_BEGINNING
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
            while True:
                message = consumer.poll(240)
                assert message is not None, f"{topic}-{partition}: nothing for 240 s"
                if error := message.error():
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                    return seen
                seen.append(_seen(message))
        finally:
            consumer.close()

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return (log start offset, high watermark)."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "offsets"}
        )
        where = confluent_kafka.TopicPartition(topic, partition)

        def found() -> tuple[int, int] | None:
            with contextlib.suppress(confluent_kafka.KafkaException):  # just started: no leader yet
                return consumer.get_watermark_offsets(where, timeout=30)
            return None

        try:
            return until(found, f"offsets of {where}", pause_s=0.1)
        finally:
            consumer.close()


def _seen(message: Any) -> Seen:
    headers = tuple(message.headers() or ())
    timestamp = message.timestamp()[1]
    return Seen(message.offset(), timestamp, message.key(), message.value(), headers)


def properties(log_dir: str, port: int, controller_port: int) -> dict[str, str]:
    """Return a node's configuration: small, quick, without a wait for anything."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@localhost:{controller_port}",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://localhost:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": log_dir,
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "replica.high.watermark.checkpoint.interval.ms": "200",
        # Retention looks all the time, not 30 s after a start: a topic whose records are too old
        # for it loses them in each run, not in slow ones alone.
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "250",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "2500",  # what a start after a kill waits for
    }


class JarEngine:
    """The broker as a Java process of Maven's jars.

    `config`: of one whose log dir is formatted already.
    """

    def __init__(
        self, home: Path, log_dir: Path, port: int, *, config: Path | None = None
    ) -> None:
        self._class_path, self._java = jars.kafka_jars(), jars.java()
        self._process: subprocess.Popen[bytes] | None = None
        self._output = home / "broker.log"
        if config is not None:
            self._config = str(config)
            return
        config = home / "server.properties"
        keys = properties(str(log_dir), port, free_port())
        config.write_text("".join(f"{k}={v}\n" for k, v in keys.items()))
        self._config = str(config)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # With "=", for one in 64 begins with a dash.
        given = [f"--cluster-id={cluster}", f"--config={self._config}"]
        self._run("kafka.tools.StorageTool", "format", *given)

    def _command(self, main: str, *arguments: str) -> list[str]:
        flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        return [self._java, *flags, "-cp", self._class_path, main, *arguments]

    def _run(self, main: str, *arguments: str) -> None:
        done = subprocess.run(self._command(main, *arguments), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", self._config),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(240)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def log(self) -> str:
        return self._output.read_text(errors="replace")


class DockerEngine:
    """The broker as a container of the official image, its log.dir mounted from here."""

    def __init__(self, log_dir: Path, port: int) -> None:
        docker = container_class(IMAGE)
        log_dir.chmod(0o777)  # the image runs as a user of its own
        keys = properties("/var/lib/kafka/data", port, 29093)
        environment = {"KAFKA_" + k.upper().replace(".", "_"): v for k, v in keys.items()}
        environment["CLUSTER_ID"] = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]
        self._container = (
            docker(IMAGE)
            .with_bind_ports(port, port)
            .with_volume_mapping(str(log_dir), "/var/lib/kafka/data", "rw")
        )
        for name, value in environment.items():
            self._container.with_env(name, value)
        self._started = False

    def start(self) -> None:
        if self._started:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._started = True

    def stop(self) -> None:
        self._container.get_wrapped_container().stop(timeout=60)

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def log(self) -> str:
        return str(self._container.get_wrapped_container().logs().decode(errors="replace"))

    def remove(self) -> None:
        """Delete the container."""
        if self._started:
            self._container.stop()


@contextlib.contextmanager
def handed_broker(home: Path, log_dir: Path, config: Path, port: int) -> Iterator[Broker]:
    """A broker, not started yet, of log dirs that were handed over with these settings.

    Raises: jars.Unavailable where Maven or a JDK is missing.
    """
    made = Broker(log_dir, port, JarEngine(home, log_dir, port, config=config))
    try:
        yield made
    finally:
        made.kill()


@contextlib.contextmanager
def broker(home: Path, *, image: bool = False) -> Any:
    """Run a broker whose files lie under `home`.

    Raises: jars.Unavailable where Maven, a JDK or a Docker engine is missing.
    """
    log_dir = home / "kafka-logs"
    log_dir.mkdir(parents=True)
    port = free_port()
    engine: Any = DockerEngine(log_dir, port) if image else JarEngine(home, log_dir, port)
    made = Broker(log_dir, port, engine)
    try:
        made.start()
        yield made
    finally:
        made.kill()
        if image:
            engine.remove()
