"""A driver for the soak: commits micro-batches by identity, with a service in its process.

Batch n puts ROWS records "n:i" into `events`, and value n under some keys into `state`, so what
the log must hold follows from the number of its last batch.
"""

import sys
from contextlib import suppress

import pyarrow as pa

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.log.commit import Identity
from sparklog.service import Service
from sparklog.storage.staging import Framing

ROWS, KEYS, PARTITIONS = 40, 25, 2
WRITER = "soak"
SMALL = {"internal.segment.bytes": "1500", "file.delete.delay.ms": "2000"}
OPTIONS = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "ledger.retention.ms": "0",
}


def events(n: int) -> pa.RecordBatch:
    values = [b"%d:%d" % (n, i) for i in range(ROWS)]
    parts = pa.array([i % PARTITIONS for i in range(ROWS)], pa.int32())
    return pa.RecordBatch.from_pydict({"value": values, "partition": parts})


def states(n: int) -> pa.RecordBatch:
    keys = [(n + 7 * i) % KEYS for i in range(5)]
    parts = pa.array([k % PARTITIONS for k in keys], pa.int32())
    made = {"key": [b"k%d" % k for k in keys], "value": [b"%d" % n] * 5, "partition": parts}
    return pa.RecordBatch.from_pydict(made)


def newest(last: int) -> dict[str, int]:
    """What `state` must say after batch `last`."""
    found: dict[str, int] = {}
    for n in range(max(0, last - 2 * KEYS), last + 1):
        found |= dict.fromkeys((f"k{(n + 7 * i) % KEYS}" for i in range(5)), n)
    return found


def main(path: str) -> None:
    with sparklog.open(path, "rw") as log, Service(path, options=OPTIONS):
        with suppress(InvalidRequestError):  # they are there already
            bounded = SMALL | {"retention.bytes": "6000"}
            log.create_topic("events", PARTITIONS, bounded, if_not_exists=True)
            compact = SMALL | {"cleanup.policy": "compact"}
            log.create_topic("state", PARTITIONS, compact, if_not_exists=True)
        topics = log.topics()
        done = log.commits(WRITER)["batch"].to_pylist()
        n = max(done, default=-1)  # the last one once more, as a restarted query would
        while True:
            n = max(n, 0)
            stager = log.stager(Framing())
            stager.add(topics["events"], events(n))
            stager.add(topics["state"], states(n))
            identity = Identity(writer=WRITER, batch=n, fingerprint=f"fp{n}")
            log.commit(stager.finish(), identity=identity)
            n += 1


if __name__ == "__main__":
    main(sys.argv[1])
