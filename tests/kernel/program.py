"""What tests/kernel/test_syncs.py traces: python -m tests.kernel.program ROOT."""

import os
import sys
from pathlib import Path

import pyarrow as pa

import sparklog
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append, clean, create
from sparklog.fs import LOCAL
from sparklog.service import Service
from tests.kernel import MARKS

CONFIG = {"segment.bytes": 1 << 20, "remote.storage.enable": "true"}
ROWS = pa.table({"value": [os.urandom(700_000)]})


def main(root: Path) -> None:
    marks = root / MARKS
    marks.mkdir()

    def mark(name: str) -> None:
        (marks / name).mkdir()

    def of_log(home: str, url: str) -> None:
        with sparklog.open(url, "rw") as log:
            mark(f"{home}-topic")
            log.create_topic("t", config=CONFIG)
            mark(f"{home}-commit")
            log.append("t", ROWS, partition=0)
            mark(f"{home}-roll")
            log.append("t", ROWS, partition=0)
            mark(f"{home}-close")

    of_log("log-dir", str(root / "log"))
    mark("tier")
    with Service(str(root / "log"), remote=f"file://{root}/tier") as service:
        service.run_once()
    mark("bucket-open")
    of_log("bucket", f"file://{root}/bucket")
    directory = str(root / "checkpoint")
    mark("checkpoint-create")
    create(LOCAL, directory)
    partition = CheckpointPartition(LOCAL, directory)
    mark("checkpoint-write")
    append(partition, [Record("0", bytes(200 << 10), 1)])
    append(partition, [Record("0", b"a", 2)])
    mark("checkpoint-clean")
    assert clean(partition)
    mark("end")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
