"""A topic from a live Kafka into a log, and back into Kafka: each record once.

    python examples/kafka_and_back.py HOST:PORT

1. A producer writes orders to Kafka, some of them in a transaction that is aborted.
2. `import_topic` copies them into a log: offsets, timestamps, keys and headers are Kafka's, and
   where the aborted records and the markers were, offsets are missing. Repeated, it goes on.
3. Plain Python looks at them without the broker.
4. `export_kafka` sends them to another topic, in transactions that also hold how far they go; a
   second run finds nothing to do.
"""

import argparse
import shutil
import tempfile
import uuid
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import sparklog
from sparklog.tools.moving.export_kafka import export_kafka
from sparklog.tools.moving.import_kafka import import_topic


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


def run(servers: str, base: Path) -> None:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    orders(servers, name)
    with sparklog.open(base / "log", "rw") as log:
        done = import_topic(log, "orders", servers, kafka_topic=name)
        again = import_topic(log, "orders", servers, kafka_topic=name)
        print(f"imported {done.records} records, offsets {done.offsets}; again: {again.records}")
        assert (done.records, again.records) == (200, 0)
    with sparklog.open(base / "log") as log:
        offsets = log.read("orders", [0], columns=["offset"]).read_all()["offset"].to_pylist()
        end = log.offsets("orders")[0][1]
        print(f"partition 0 ends at {end} and holds {len(offsets)} records, the rest are gaps")
        assert len(offsets) == 100 < end
        back = export_kafka(log, "orders", servers, kafka_topic=f"{name}-back", create=True)
        more = export_kafka(log, "orders", servers, kafka_topic=f"{name}-back")
        print(f"exported {back.records} records to {back.to}; again: {more.records}")
        assert (back.records, more.records) == (200, 0)


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
