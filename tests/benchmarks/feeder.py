"""A process that appends a batch of rows every so often, to a log or to a topic of Kafka.

    python -m tests.benchmarks.feeder PLACE TOPIC --rows 1000 --every-ms 100

PLACE is a log dir, or a broker's host:port. It ends when its standard input does.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable

from tests.benchmarks.table import sample

VALUE_BYTES = 100
Feed = Callable[[], None]


def into_log(path: str, topic: str, rows: int) -> tuple[Feed, Feed]:
    import sparklog

    log = sparklog.open(path, mode="rw")
    table = sample(rows, VALUE_BYTES).drop_columns(["timestamp"])
    return lambda: (log.append(topic, table), None)[1], log.close


def into_kafka(bootstrap: str, topic: str, rows: int) -> tuple[Feed, Feed]:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    table = sample(rows, VALUE_BYTES)
    pairs = list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))

    def feed() -> None:
        for key, value in pairs:
            producer.produce(topic, value, key)
        producer.flush()

    return feed, producer.flush


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("place")
    parser.add_argument("topic")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--every-ms", type=float, default=100)
    given = parser.parse_args()
    make = into_log if os.path.isdir(given.place) else into_kafka
    feed, end = make(given.place, given.topic, given.rows)
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    due = time.monotonic()
    while not stopped.wait(max(0.0, due - time.monotonic())):
        feed()
        due = max(due + given.every_ms / 1000, time.monotonic())
    end()


if __name__ == "__main__":
    main()
