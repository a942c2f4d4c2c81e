"""The Kafka endpoint beside a real broker on the same segments, in the same run, by turns.

    python -m tests.benchmarks kafka [--parts fetch,sizes,produce,idle,hold]
        [--megabytes N] [--rounds N]

Medians; a server is a process of its own, its CPU time the process's. Needs Java.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import sparklog
from tests import jars
from tests.benchmarks.endpoint import fetching, holding, idling, producing
from tests.benchmarks.endpoint.servers import Server, endpoint, real_broker
from tests.benchmarks.table import print_rows

PARTS = ("fetch", "sizes", "produce", "idle", "hold")


def fetch(scratch: Path, given: argparse.Namespace) -> None:
    log = scratch / "log"
    kinds = [(100, "none"), (1024, "none"), (1024, "lz4")]
    made = {}
    for value_bytes, codec in kinds:
        topic = f"b{value_bytes}-{codec}"
        made[topic] = fetching.fill(log, topic, given.megabytes, value_bytes, codec)
    with real_broker(scratch / "broker") as broker:
        broker.take(log, made, fetching.PARTITIONS)
        with endpoint(log) as ours:
            for (value_bytes, codec), (topic, (records, size)) in zip(
                kinds, made.items(), strict=True
            ):
                what = f"{value_bytes} B, {codec}"
                servers = (ours, broker.server)
                rows = fetching.rows(servers, topic, records, size, what, rounds=given.rounds)
                print_rows(f"fetch, {what}, {size / 1e6:.0f} MB", rows)


def sizes(scratch: Path, given: argparse.Namespace) -> None:
    """Fetches by size: small batches for the small ones, Kafka's batch.size for the others."""
    log = scratch / "log"
    topics = {}
    for size in fetching.SIZES:
        batch_size = min(size // 4, 16 << 10)
        topics[size] = f"batches-{batch_size}"
        if topics[size] not in list(topics.values())[:-1]:
            fetching.fill(
                log, topics[size], given.megabytes // 4, 100, "none", batch_size=batch_size
            )
    with real_broker(scratch / "broker") as broker:
        broker.take(log, dict.fromkeys(topics.values()), fetching.PARTITIONS)
        with endpoint(log) as ours:
            for size, topic in topics.items():
                servers = (ours, broker.server)
                rows = fetching.size_rows(servers, topic, size, rounds=given.rounds)
                print_rows(f"fetches of {size >> 10} KiB", rows)


def produce(scratch: Path, given: argparse.Namespace) -> None:
    log = scratch / "log"
    with sparklog.open(log, "rw") as opened:
        opened.create_topic("p", 2)
    with real_broker(scratch / "broker") as broker, endpoint(log) as ours:
        broker.broker.create_topic("p", 2, flush_messages=1)
        for value_bytes in (100, 1024):
            servers = (ours, broker.server)
            rows = producing.rows(
                servers, "p", value_bytes, rounds=given.rounds, megabytes=given.megabytes // 4
            )
            print_rows(f"produce, {value_bytes} B, acks=all", rows)


def _beside(scratch: Path, given: argparse.Namespace) -> Iterator[tuple[Server, Server, int]]:
    """A filled topic `t` of both servers, and the end of its partition 0."""
    log = scratch / "log"
    records, _ = fetching.fill(log, "t", 64, 1024, "none")
    with real_broker(scratch / "broker") as broker:
        broker.take(log, ["t"], fetching.PARTITIONS)
        with endpoint(log) as ours:
            yield ours, broker.server, records // fetching.PARTITIONS


def idle(scratch: Path, given: argparse.Namespace) -> None:
    for ours, theirs, end in _beside(scratch, given):
        print_rows("consumers that wait", idling.rows((ours, theirs), "t", end))


def hold(scratch: Path, given: argparse.Namespace) -> None:
    for ours, theirs, _ in _beside(scratch, given):
        print_rows("slow clients", holding.rows((ours, theirs), "t", fetching.PARTITIONS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    parts = {"fetch": fetch, "sizes": sizes, "produce": produce, "idle": idle, "hold": hold}
    for part in given.parts.split(","):
        scratch = Path(tempfile.mkdtemp(prefix="sparklog-bench-"))
        try:
            parts[part](scratch, given)
        except jars.Unavailable as reason:
            print(f"kafka: skipped ({reason})")
            return
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
