"""Records in the order of time: whatever is asked, page after page, each record comes just once."""

import itertools
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.format.compression import Codec
from sparklog.format.scan import scan
from sparklog.log.log import Log
from sparklog.storage.staging import Framing
from sparklog.tools.browse.bounds import Kind, parse_bound
from sparklog.tools.browse.filters import Filters, KeyMatch
from sparklog.tools.browse.limits import Limits
from sparklog.tools.browse.looking import Look, Query, look
from tests.paths import ROOT

T0 = 1_700_000_000_000
UNHURRIED: dict[str, int] = {"time_ms": 3_600_000}  # a busy machine ends no look
GOLDEN = ROOT / "tests" / "golden" / "kafka-4.1" / "logdir"


def pages(log: Log, query: Query, *, most: int = 500) -> list[Look]:
    """Go on until the end."""
    found = []
    for _ in range(most):
        found.append(look(log, query))
        if found[-1].cursor is None:
            return found
        query = replace(query, cursor=type(found[-1].cursor).parse(str(found[-1].cursor)))
    raise AssertionError("it never ends")


def rows_of(found: list[Look]) -> list[dict[str, Any]]:
    return [row for page in found for row in page.rows.to_pylist()]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three partitions, all codecs, batches of one record and of many, values up to 200 KB."""
    path = tmp_path_factory.mktemp("browse") / "log"
    rng, at = random.Random(5), T0
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        log.create_topic("t", partitions=3, config={"internal.segment.bytes": 300_000})
        log.create_topic("empty", partitions=2)
        for step in range(45):
            count = rng.choice((1, 1, 3, 40, 200))
            size = rng.choice((5, 50, 500, 200_000 if count == 1 else 800))
            at += rng.randrange(5000)
            values = [
                b"%s %d.%d %s" % (b"needle" if rng.random() < 0.03 else b"hay", step, n,
                                  rng.randbytes(size // 2).hex().encode())
                for n in range(count)
            ]  # fmt: skip
            table = pa.table(
                {
                    "key": [b"k%d" % rng.randrange(20) for _ in range(count)],
                    "value": values,
                    "timestamp": pa.array(
                        [at + rng.randrange(-2000, 2000) for _ in range(count)], pa.timestamp("ms")
                    ),
                }
            )
            framing = Framing(codec=rng.choice(list(Codec)))
            log.append("t", table, partition=step % 3, framing=framing)
        yield log


@pytest.fixture(scope="module")
def everything(log: Log) -> dict[tuple[int, int], dict[str, Any]]:
    rows = log.read("t").read_all().to_pylist()
    return {(row["partition"], row["offset"]): row for row in rows}


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("limits", [
    Limits(records=31, **UNHURRIED), Limits(records=500, **UNHURRIED),
    Limits(records=100, read_bytes=1, **UNHURRIED), Limits(records=50, kept_bytes=1, **UNHURRIED),
    Limits(records=50, time_ms=0),
], ids=str)  # fmt: skip
def test_every_record_comes_once_in_order(
    log: Log, everything: dict[Any, Any], newest_first: bool, limits: Limits
) -> None:
    found = pages(log, Query(topic="t", newest_first=newest_first, limits=limits), most=3000)
    rows = rows_of(found)
    assert len(rows) == len(everything)
    for row in rows:
        want = everything.pop((row["partition"], row["offset"]))
        assert (row["key"], row["value"], row["timestamp"]) == (
            want["key"], want["value"], want["timestamp"],
        )  # fmt: skip
    for p in range(3):
        offsets = [row["offset"] for row in rows if row["partition"] == p]
        assert offsets == sorted(offsets, reverse=newest_first)
    assert all(page.rows.num_rows <= limits.records for page in found)
    assert found[-1].share == 1
    assert not any(page.faults for page in found)
    everything.update({(r["partition"], r["offset"]): r for r in rows})


def test_pages_are_in_the_order_of_time(log: Log) -> None:
    """As far as the offsets' order allows: it was off by four seconds at most."""
    for newest_first in (True, False):
        limits = Limits(records=200, **UNHURRIED)
        rows = rows_of(pages(log, Query(topic="t", newest_first=newest_first, limits=limits)))
        times = [row["timestamp"].timestamp() for row in rows]
        gone_back = itertools.pairwise(times)
        sign = -1 if newest_first else 1
        assert max(sign * (a - b) for a, b in gone_back) <= 4.001


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("filters", [
    Filters(text="NEEDLE"), Filters(text="needle", any_case=False), Filters(key=b"k7"),
    Filters(key=b"k1", key_match=KeyMatch.PREFIX, text="needle"), Filters(text="nowhere"),
], ids=str)  # fmt: skip
def test_a_search_finds_all_and_says_how_far_it_looked(
    log: Log, everything: dict[Any, Any], newest_first: bool, filters: Filters
) -> None:
    def meant(row: dict[str, Any]) -> bool:
        key, value = row["key"], row["value"].lower()
        if filters.key is not None and filters.key_match is KeyMatch.PREFIX:
            if not key.startswith(filters.key):
                return False
        elif filters.key is not None and key != filters.key:
            return False
        return filters.text.lower().encode() in value

    want = {at for at, row in everything.items() if meant(row)}
    limits = Limits(records=10, read_bytes=1 << 20, **UNHURRIED)
    query = Query(topic="t", filters=filters, newest_first=newest_first, limits=limits)
    found = pages(log, query)
    rows = rows_of(found)
    assert {(row["partition"], row["offset"]) for row in rows} == want
    assert len(rows) == len(want)
    assert sum(page.looked_at for page in found) >= len(everything)
    shares = [page.share for page in found]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert {page.ended for page in found[:-1]} <= {"bytes", "records"}
    assert max(page.read_bytes for page in found) < (1 << 20) + (8 << 20)


def test_a_time_before_1970_is_before_all_records(log: Log) -> None:
    """-1 ms isn't Kafka's -1, the end."""
    start = parse_bound("1969-12-31T23:59:59.999Z", name="from", default=Kind.EARLIEST)
    assert look(log, Query(topic="t", start=start, newest_first=False)).rows.num_rows > 0


def test_bounds(log: Log, everything: dict[Any, Any]) -> None:
    def ask(start: str, end: str, **given: Any) -> set[tuple[int, int]]:
        query = Query(
            topic="t",
            limits=Limits(records=500, **UNHURRIED),
            start=parse_bound(start, name="from", default=Kind.EARLIEST),
            end=parse_bound(end, name="to", default=Kind.LATEST),
            **given,
        )
        return {(row["partition"], row["offset"]) for row in rows_of(pages(log, query))}

    for newest_first in (True, False):
        given = {"newest_first": newest_first}
        assert ask("10", "15", **given) == {(p, n) for p in range(3) for n in range(10, 15)}
        ends = {p: end for p, (_, end) in log.offsets("t").items()}
        want = {(p, n) for p, end in ends.items() for n in range(end - 3, end)}
        assert ask("-3", "", **given) == want
        assert ask("-3", "latest", partitions=(1,), **given) == {w for w in want if w[0] == 1}
        assert ask("latest", "earliest", **given) == set()
        assert ask("9999999", "", **given) == set()
        assert ask("", "", **given) == set(everything)
        times = sorted(row["timestamp"] for row in everything.values())
        middle = times[len(times) // 2]
        firsts = log.offsets_for_times("t", middle)
        want = {at for at in everything if at[1] >= (firsts[at[0]] or 0)}
        assert ask(middle.isoformat(), "", **given) == want
        assert ask("", f"@{int(middle.timestamp() * 1000)}", **given) == set(everything) - want
        assert ask("-1h", "", **given) == set()


def test_nothing_there(log: Log) -> None:
    found = look(log, Query(topic="empty"))
    assert (found.rows.num_rows, found.cursor, found.ended, found.share) == (0, None, "", 1.0)
    with pytest.raises(sparklog.UnknownTopicError):
        look(log, Query(topic="nowhere"))
    with pytest.raises(sparklog.UnknownTopicError, match="no partition 3, 7: it has 3"):
        look(log, Query(topic="t", partitions=(0, 3, 7)))


def test_a_browser_that_is_gone_is_not_worked_for(log: Log) -> None:
    asked = []

    def gone() -> bool:
        asked.append(1)
        return len(asked) > 4

    found = look(log, Query(topic="t", filters=Filters(text="nowhere")), gone=gone)
    assert found.ended == "gone"
    assert found.share < 1


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_brokers_directory_with_transactions_and_compaction(newest_first: bool) -> None:
    """Aborted records and markers are shown as such; what is left are a consumer's records."""
    with sparklog.open(GOLDEN) as log:
        for topic in log.topics():
            limits = Limits(records=300, **UNHURRIED)
            query = Query(topic=topic, newest_first=newest_first, limits=limits)
            found = pages(log, query)
            rows = rows_of(found)
            places = [(row["partition"], row["offset"]) for row in rows]
            assert len(set(places)) == len(places)
            seen = {
                (r["partition"], r["offset"]): r["value"]
                for r in rows
                if not r["aborted"] and not r["attributes"] & 0x20
            }
            want = log.read(topic, isolation="read_committed").read_all().to_pylist()
            assert seen == {(r["partition"], r["offset"]): r["value"] for r in want}
            if topic == "txn":
                assert {row["aborted"] for row in rows} == {True, False}
                markers = [row for row in rows if row["attributes"] & 0x20]
                assert {row["key"] for row in markers} == {b"\0\0\0\0", b"\0\0\0\1"}


def _path_of(log: Log, topic: str) -> Path:
    return Path(log.topic(topic).dirs[0])


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.usefixtures("impatient")
def test_what_is_damaged_is_told_and_the_rest_is_shown(tmp_path: Path, newest_first: bool) -> None:
    with sparklog.open(tmp_path / "log", "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"internal.segment.bytes": 4000, "compression.type": "zstd"})
        rng = random.Random(3)
        for n in range(60):
            log.append("t", pa.table({"value": [f"{n} {rng.randbytes(200).hex()}"] * 3}))
        files = sorted(_path_of(log, "t").glob("*.log"))
    file = files[len(files) // 2]
    raw = bytearray(file.read_bytes())
    batches = scan(bytes(raw), path=str(file)).table
    raw[int(batches["position"][len(batches) // 2]) + 70] ^= 255  # of the records
    file.write_bytes(raw)
    with sparklog.open(tmp_path / "log") as log:
        limits = Limits(records=90, **UNHURRIED)
        query = Query(topic="t", newest_first=newest_first, limits=limits)
        found = pages(log, query)
        offsets = [row["offset"] for row in rows_of(found)]
        lost = set(range(180)) - set(offsets)
        assert len(offsets) == len(set(offsets))
        first, last = int(file.stem), int(files[files.index(file) + 1].stem)
        assert lost
        assert min(lost) > first
        assert max(lost) < last
        assert any("can't be read" in fault for page in found for fault in page.faults)


@pytest.mark.parametrize("newest_first", [True, False])
def test_what_unpacks_to_too_much_is_left_out(tmp_path: Path, newest_first: bool) -> None:
    """A few bytes of zstd hold any number of zeros; and a batch may be larger than is well."""
    with sparklog.open(tmp_path / "log", "rw", options={"flush": "none"}) as log:
        log.create_topic("t", config={"max.message.bytes": 40 << 20})
        for n, size in enumerate((10, 9 << 20, 20, 30 << 20, 30)):
            codec = Codec.ZSTD if n == 1 else Codec.NONE
            table = pa.table({"value": [b"\0" * size], "key": [b"%d" % n]})
            log.append("t", table, framing=Framing(codec=codec))
        limits = Limits(records=10, batch_bytes=8 << 20, **UNHURRIED)
        found = pages(log, Query(topic="t", limits=limits, newest_first=newest_first))
        keys = [row["key"] for row in rows_of(found)]
        assert sorted(keys) == [b"0", b"2", b"4"]
        faults = " ".join(fault for page in found for fault in page.faults)
        assert "offset 3 has 31," in faults
        assert "`sparklog consume` reads it" in faults
        assert "[1, 2) can't be shown" in faults
    output = tmp_path / "output"
    with output.open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "sparklog.cli", "consume", str(tmp_path / "log"), "--topic", "t",
             "--partition", "0", "--offset", "3", "--max-messages", "1"],
            stdout=file, check=True, timeout=240,
        )  # fmt: skip
    assert output.stat().st_size == (30 << 20) + 1


def test_a_search_that_finds_much_is_in_the_order_of_time_as_well(log: Log) -> None:
    """The newest of all partitions come first, not those of the one that was read first."""
    for newest_first in (True, False):
        query = Query(topic="t", newest_first=newest_first, limits=Limits(records=40, **UNHURRIED))
        want = rows_of([look(log, query)])
        found = rows_of([look(log, replace(query, filters=Filters(text="k", any_case=False)))])
        places = [(row["partition"], row["offset"]) for row in found]
        assert places == [(row["partition"], row["offset"]) for row in want]
