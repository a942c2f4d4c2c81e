"""A topic from a live Kafka into a log, and back into Kafka: each record once.

    python examples/kafka_and_back.py HOST:PORT

1. A producer writes orders to Kafka, some of them in a transaction that is aborted.
2. `sparklog import` copies them into a log with their offsets, timestamps, keys and headers. The
   offsets of aborted records and of transaction markers are missing. A second run continues where
   the first one ended.
3. Plain Python reads the records without the broker.
4. `sparklog export` sends them to another topic, in transactions that also store the position. A
   second run finds no new records.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import sparklog


def orders(servers: str, topic: str) -> None:
    """300 orders in three transactions; the second one is aborted."""
    admin = AdminClient({"bootstrap.servers": servers})
    keep = {"retention.ms": "-1"}  # orders of 2023: a broker's week would be over at once
    admin.create_topics([NewTopic(topic, 2, 1, config=keep)])[topic].result(30)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "transactional.id": f"orders-{topic}"}
    )
    producer.init_transactions(30)
    for batch in range(3):
        producer.begin_transaction()
        for n in range(batch * 100, batch * 100 + 100):
            producer.produce(
                topic, key=f"customer {n % 7}", value=f'{{"order": {n}}}', partition=n % 2,
                timestamp=1_700_000_000_000 + n, headers={"batch": str(batch)},
            )  # fmt: skip
        producer.flush(30)
        if batch == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def sparklog_json(*arguments: str | Path) -> Any:
    """Run a sparklog command and return what it prints."""
    command = [sys.executable, "-m", "sparklog", *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def run(servers: str, base: Path) -> None:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    orders(servers, name)
    path = base / "log"
    copy = ("import", path, "--topic", "orders", "--bootstrap-server", servers)
    done, again = (sparklog_json(*copy, "--kafka-topic", name) for _ in range(2))
    print(f"imported {done['records']} records, again: {again['records']}")
    assert (done["records"], again["records"]) == (200, 0)
    with sparklog.open(path) as log:
        offsets = log.read("orders", [0], columns=["offset"]).read_all()["offset"].to_pylist()
        end = log.offsets("orders")[0][1]
        print(f"partition 0 ends at {end} and holds {len(offsets)} records, the rest are gaps")
        assert len(offsets) == 100 < end
    copy = ("export", path, "--topic", "orders", "--to-kafka", servers, "--create")
    back, more = (sparklog_json(*copy, "--kafka-topic", f"{name}-back") for _ in range(2))
    print(f"exported {back['records']} records to {back['to']}; again: {more['records']}")
    assert (back["records"], more["records"]) == (200, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("bootstrap_server", help="HOST:PORT of a broker")
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="sparklog-kafka-"))
    try:
        run(given.bootstrap_server, base)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
