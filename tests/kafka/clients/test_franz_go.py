"""franz-go's own tests against our endpoint: groups of many members that come and go, transfer of
every record exactly once a group, topics deleted while they are read, paused and regex consumers.

They pick their brokers from KGO_SEEDS. Left out: what a log here has not (transactions, share
groups, the groups of KIP-848, SCRAM by environment) and TestConsumeRegex, which waits for the topic
__consumer_offsets (here offsets lie beside the log), and one that reads its own source.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from sparklog.kafka import Endpoint
from sparklog.log.log import Log
from tests import jars
from tests.depth import by_depth
from tests.kafka.clients.programs import franz_go_tests

pytestmark = [pytest.mark.kafka, pytest.mark.deep]

LEFT_OUT: Final = "Share|Txn|SCRAM|848|TestConsumeRegex$|TestOptValues"
RECORDS: Final = by_depth(small=5000, ci=5000, all=100_000)
MUST_PASS: Final = {
    "TestGroupETL", "TestGroupSimple", "TestClient_Produce", "TestClient_ProduceLargeMessages",
    "TestConsumeTopicRetrieval", "TestDirectPartitionPurge", "TestAddRemovePartitions",
    "TestPauseIssue489", "TestIssue337", "TestIssue434", "TestIssue523", "TestIssue648",
    "TestIssue810", "TestIssue865", "TestLookbackMilli", "TestPing", "TestPooling",
}  # fmt: skip


@pytest.mark.slow
def test_its_own_tests_pass(sparklog_log: Log, tmp_path: Path) -> None:
    with jars.or_skip("franz-go's tests"):
        program = franz_go_tests()
    options = {"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": True}
    with Endpoint(sparklog_log, options=options) as endpoint:
        settings = {
            "KGO_SEEDS": endpoint.bootstrap_servers, "KGO_TEST_RF": "1", "KGO_LOG_LEVEL": "none",
            "KGO_TEST_RECORDS": str(RECORDS), "KGO_TEST_MAX_TOPIC_PARTS": "3",
        }  # fmt: skip
        done = subprocess.run(
            [program, "-test.v", "-test.timeout", "400s", "-test.skip", LEFT_OUT],
            env=os.environ | settings, cwd=tmp_path, capture_output=True, text=True, timeout=450,
        )  # fmt: skip
    passed = set(re.findall(r"^--- PASS: (\S+)", done.stdout, re.MULTILINE))
    failed = re.findall(r"^ *--- FAIL: (\S+)", done.stdout, re.MULTILINE)
    assert failed == []
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert passed >= MUST_PASS
