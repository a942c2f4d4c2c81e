"""The golden partitions: their files, and what a consumer of a real broker read in them."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from tests.kafka.clients.client import CODECS, Client, Record
from tests.paths import GOLDEN

LOGDIR: Final = GOLDEN / "kafka-4.1" / "logdir"
EXPECTED: Final = GOLDEN / "kafka-4.1" / "expected"


@dataclass(frozen=True, slots=True)
class Golden:
    """One partition as one isolation level shows it; values are md5 and length."""

    topic: str
    partition: int
    committed: bool
    start: int
    end: int
    times: list[tuple[int, int]]
    rows: list[list[Any]]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}{'-committed' if self.committed else ''}"

    @property
    def codecs(self) -> frozenset[str]:
        """The codecs that a reader of the topic must know."""
        return _codecs(self.topic)


@cache
def _codecs(topic: str) -> frozenset[str]:
    found = set()
    for segment in LOGDIR.glob(f"{topic}-[0-9]/*.log"):
        raw, at = segment.read_bytes(), 0
        while at < len(raw):
            (length,) = struct.unpack_from(">i", raw, at + 8)
            (attributes,) = struct.unpack_from(">h", raw, at + 21)
            found.add(CODECS[attributes & 7])
            at += 12 + length
    return frozenset(found)


@cache
def partitions() -> dict[str, Golden]:
    """Return all of them by name; "txn-0-committed" is txn-0 at read_committed."""
    made = {}
    for path in sorted(EXPECTED.glob("*.json.gz")):
        topic, _, number = path.name.removesuffix(".json.gz").rpartition("-")
        for level, found in json.loads(gzip.decompress(path.read_bytes())).items():
            one = Golden(
                topic, int(number), level == "read_committed", found["log_start_offset"],
                found["log_end_offset"], found["offsets_for_times"], found["records"],
            )  # fmt: skip
            made[str(one)] = one
    return made


def topics() -> dict[str, int]:
    """Return {topic: partitions}."""
    counts: dict[str, int] = {}
    for one in partitions().values():
        counts[one.topic] = max(counts.get(one.topic, 0), one.partition + 1)
    return counts


def expected(golden: Golden, client: Client) -> list[Record]:
    """What the client must show: each value as its md5, but for those that are empty."""
    return [
        client.shown(
            Record(
                partition=golden.partition, offset=offset, timestamp=timestamp,
                key=None if key is None else bytes.fromhex(key),
                value=None if md5 is None else md5.encode() if length else b"",
                headers=tuple((k, None if v is None else bytes.fromhex(v)) for k, v in headers),
            )
        )
        for offset, timestamp, _, key, md5, length, headers in golden.rows
    ]  # fmt: skip


def digests(records: Iterable[Record]) -> list[Record]:
    """Return the records with each value's md5 in its place, as in `expected`."""
    return [
        replace(r, value=hashlib.md5(r.value).hexdigest().encode()) if r.value else r
        for r in records
    ]
