"""A checkpoint in a bucket, used by hosts that see none of each other's directories."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.checkpoint import history, verify
from tests.examples import load
from tests.ports import free_ports
from tests.spark.conftest import environment
from tests.spark.jvm import QUICK, quick
from tests.spark.versions import since
from tests.state.s3a import s3a_conf
from tests.state.stored_driver import STATE
from tests.state.test_s3 import ROCKSDB
from tests.tiered.s3 import S3Server
from tests.waiting import until

pytestmark = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.s3, since((4, 2), "Hadoop 3.5")
]  # fmt: skip
STATEFUL = {
    f"{STATE}.providerClass": ROCKSDB, f"{STATE}.checkpointFormatVersion": "2",
    f"{STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STATE}.minDeltasForSnapshot": "2", f"{STATE}.maintenanceInterval": "1s",
    "spark.executor.extraJavaOptions": quick(), "spark.sql.shuffle.partitions": "4",
}  # fmt: skip
RECORDS, PER_BATCH, KEYS = 1000, 100, 7


def check_namespaces() -> None:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    attempt = ["unshare", *user, "--mount-proc", "--pid", "--fork", "true"]
    if subprocess.run(attempt, capture_output=True).returncode:
        pytest.skip("no mount namespaces here")


def check_totals(sink: str, keys: list[str]) -> None:
    """Each batch has a total of each key, once."""
    with sparklog.open(sink) as log:
        rows = log.read("totals", columns=["key", "value"]).read_all().to_pylist()
    totals = {bytes(row["key"]).decode(): int(bytes(row["value"])) for row in rows}
    assert totals == Counter(keys)
    assert len(rows) == KEYS * RECORDS // PER_BATCH


def move(url: str, s3: S3Server, settings: Path) -> list[str]:
    """Return the arguments of Python that move the state to three partitions, and compare it."""
    calls, (target, scratch) = settings.parent / "calls.json", (s3.bucket(), s3.bucket())
    call = {
        "moved": url, "target": f"{target}/moved", "options": s3.options(),
        "scratch": scratch.replace("s3://", "s3a://"),
    }  # fmt: skip
    calls.write_text(json.dumps([call]))
    return ["-m", "tests.state.s3_bootstrap", str(settings), str(calls)]


def test_a_worker_and_a_driver_are_lost(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stateful query goes on, in the end with a driver on another host; each row comes once."""
    cluster = load("cluster", monkeypatch)
    given, (port,) = s3.options(), free_ports(1)
    check_namespaces()
    for name, value in environment(
        AWS_ENDPOINT_URL=given["endpoint_url"], AWS_ACCESS_KEY_ID=given["key"],
        AWS_SECRET_ACCESS_KEY=given["secret"], AWS_DEFAULT_REGION="us-east-1",
        SPARK_DAEMON_JAVA_OPTS=QUICK,
    ).items():  # fmt: skip
        monkeypatch.setenv(name, value)
    base, master = tmp_path / "hosts", f"spark://{cluster.HERE}:{port}"
    base.mkdir()
    settings = tmp_path / "settings.json"
    conf = {**cluster.SETTINGS, **sparklog.spark_conf(), **s3a_conf(s3), **STATEFUL}
    settings.write_text(json.dumps({"master": master, **conf}))
    source, sink = f"{s3.bucket()}/source", f"{s3.bucket()}/sink"
    url = f"{s3.bucket()}/query"
    keys = [f"k{n % KEYS}" for n in range(RECORDS)]
    with sparklog.open(source, "rw") as log:
        log.create_topic("in")
        log.append("in", pa.table({"key": keys, "value": keys}))
    with sparklog.open(sink, "rw") as log:
        log.create_topic("totals")

    def drive(name: str) -> "subprocess.Popen[str]":
        words = ["-m", "tests.state.s3_query", str(settings), source, sink]
        checkpoint = url.replace("s3://", "s3a://")
        made: subprocess.Popen[str] = cluster.host(base, name, sys.executable, *words, checkpoint)
        return made

    def batches() -> int:
        with sparklog.open(sink) as log:
            return log.offsets("totals")[0][1] // KEYS

    hosts = {}
    try:
        hosts["master"] = cluster.host(
            base, "master", cluster.SPARK_CLASS, "org.apache.spark.deploy.master.Master",
            "--host", cluster.HERE, "--port", str(port), "--webui-port", "0",
        )  # fmt: skip
        hosts["worker-1"] = cluster.worker(base, "worker-1", master)
        hosts["driver"] = drive("driver")
        until(lambda: batches() >= 2, "two batches", seconds=120)
        hosts["worker-1"].send_signal(signal.SIGKILL)
        hosts["worker-2"] = cluster.worker(base, "worker-2", master)
        until(lambda: batches() >= 5, "batches on another worker", seconds=120)
        hosts["driver"].send_signal(signal.SIGKILL)
        hosts["driver"].wait()
        before = batches()
        hosts["another"] = drive("another")
        assert hosts["another"].wait(240) == 0
        # The state is moved by tasks on a worker that shares no disk with the driver.
        words = move(url, s3, settings)
        hosts["mover"] = cluster.host(base, "driver", sys.executable, *words)
        printed, _ = hosts["mover"].communicate(timeout=240)
        assert f"is equal: {KEYS} rows" in printed, printed
    finally:
        for one in hosts.values():
            one.kill()
            one.communicate()
    assert before < RECORDS // PER_BATCH
    check_totals(sink, keys)
    found = history(url, storage_options=given)
    assert [row.batch for row in found.batches][-1] == RECORDS // PER_BATCH - 1
    assert verify(url, storage_options=given).ok
    assert not list(base.iterdir())
