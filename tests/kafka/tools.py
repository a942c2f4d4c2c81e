"""Kafka's own command line tools, run in one JVM after the other."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests import jars

_TOOLS: Final = "org.apache.kafka.tools"
CLASSES: Final = {
    "acls": f"{_TOOLS}.AclCommand",
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "client-metrics": f"{_TOOLS}.ClientMetricsCommand",
    "cluster": f"{_TOOLS}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "delegation-tokens": f"{_TOOLS}.DelegationTokenCommand",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "features": f"{_TOOLS}.FeatureCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "groups": f"{_TOOLS}.GroupsCommand",
    "leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "producer-performance": f"{_TOOLS}.ProducerPerformance",
    "reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "share-groups": f"{_TOOLS}.consumer.group.ShareGroupCommand",
    "streams-groups": f"{_TOOLS}.streams.StreamsGroupCommand",
    "topics": f"{_TOOLS}.TopicCommand",
    "transactions": f"{_TOOLS}.TransactionsCommand",
}
"""bin/kafka-NAME.sh -> what it runs."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a tool ended with, and printed."""

    exit: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it printed, without what is empty."""
        return [line.strip() for line in self.out.splitlines() if line.strip()]


class Tools:
    """Runs Kafka's tools against one bootstrap server at a time; `close` ends the JVM."""

    def __init__(self) -> None:
        """Raises: jars.Unavailable."""
        source = Path(__file__).with_name("ToolRunner.java")
        class_path = jars.compiled(source, jars.kafka_jars())
        self._process = subprocess.Popen(
            [
                jars.java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path, "ToolRunner",
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, tool: str, *arguments: str, bootstrap: str) -> Ran:
        """Run bin/kafka-TOOL.sh with `--bootstrap-server` and `arguments`."""
        words = list(arguments)
        at = 1 if tool == "cluster" else 0  # behind its subcommand
        if tool != "producer-performance":
            words[at:at] = ["--bootstrap-server", bootstrap]
        else:
            words += ["--producer-props", f"bootstrap.servers={bootstrap}"]
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([CLASSES[tool], *words]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Ran(answer["exit"], answer["out"], answer["err"])

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(240)
        self._process.stdout.close()
