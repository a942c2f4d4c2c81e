"""Made tests/golden/sparklog-1/logdir with sparklog 0.1.0. Kept for the record; never run it anew:
later releases must go on reading what that release wrote.
"""

import sys
from pathlib import Path

import pyarrow as pa

import sparklog
from sparklog.clock import ManualClock
from sparklog.format.compression import Codec
from sparklog.log.commit import Identity
from sparklog.storage.staging import Framing

T0 = 1_700_000_000_000


def main(path: Path) -> None:
    clock = ManualClock(T0)
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("events", partitions=2, config={"retention.ms": -1})
        log.create_topic("latest", config={"cleanup.policy": "compact"})
        log.create_topic("dropped")
        for n, codec in enumerate(Codec):
            clock.advance(1000)
            rows = pa.table(
                {
                    "key": [f"k{n}", None],
                    "value": [f"{codec.name.lower()}", None],
                    "headers": pa.array(
                        [[{"key": "h", "value": b"1"}], []],
                        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                    ),
                    "timestamp": pa.array([T0 + n, T0 - n], pa.timestamp("ms", "UTC")),
                }
            )
            log.append("events", rows, partition=n % 2, framing=Framing(codec=codec))
        for batch in range(3):
            clock.advance(1000)
            stager = log.stager(Framing())
            value = pa.table({"key": ["a"], "value": [f"v{batch}"]})
            stager.add(log.topic("latest"), value.to_batches()[0])
            log.commit(
                stager.finish(),
                identity=Identity(writer="query/sink", batch=batch, fingerprint=f"fp{batch}"),
                app="app-1",
            )
        log.delete_records("events", {0: 1})
        log.append("dropped", pa.table({"value": ["x"]}))
        log.delete_topic("dropped")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
