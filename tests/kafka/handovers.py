"""Logs that are handed over to a real broker, which then runs on them."""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from sparklog.tools.handover.log_handover import BrokerSettings, HandedOver, hand_over
from tests import jars
from tests.kafka.broker import Broker, handed_broker
from tests.ports import free_port

QUICK = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "250",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2500",
}


@contextlib.contextmanager
def served(
    path: str | Path, home: Path, *, beside: str = "", **given: Any
) -> Iterator[tuple[Broker, HandedOver]]:
    """Hand a log over and run a broker on it, with the very settings that were given for it.

    `beside`: a further log dir that its operator gives it.
    """
    port, controller = free_port(), free_port()
    listeners = f"PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}"
    done = hand_over(path, BrokerSettings(listeners=listeners, **given))
    config = home / "handed.properties"
    dirs = {"log.dirs": ",".join([*done.directories, beside])} if beside else {}
    more = "".join(f"{k}={v}\n" for k, v in {**QUICK, **dirs}.items())
    config.write_text(done.properties + more)
    with handed_broker(home, Path(done.directories[0]), config, port) as broker:
        broker.start()
        yield broker, done


def described(broker: Broker, topic: str) -> dict[str, str]:
    """The configs that are set on a topic itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = broker.admin()  # its futures die with it
    found = admin.describe_configs([resource])[resource].result(240)
    return {name: entry.value for name, entry in found.items() if entry.source == 1}


def topic_ids(broker: Broker) -> dict[str, str]:
    """{topic: id}, as Kafka's own tool tells them."""
    out = tool("org.apache.kafka.tools.TopicCommand", broker, "--describe")
    return dict(re.findall(r"Topic: (\S+)\tTopicId: (\S+)", out))


def tool(main: str, broker: Broker, *arguments: str) -> str:
    """Run one of Kafka's tools; return what it prints."""
    command = [
        jars.java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", jars.kafka_jars(), main,
        "--bootstrap-server", broker.bootstrap, *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def strays(path: Path) -> list[str]:
    """What a broker renamed."""
    return [entry.name for entry in path.iterdir() if "stray" in entry.name]
