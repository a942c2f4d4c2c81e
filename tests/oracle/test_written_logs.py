"""What Kafka's own code makes of logs that sparklog wrote: every codec, several segments."""

import pytest

import sparklog
from sparklog.clock import ManualClock
from tests.oracle.rows import BASE_MS, CODECS, from_table, make, table


def _config(codec: str) -> dict[str, object]:
    return {
        "compression.type": codec,
        "internal.segment.bytes": 60_000 if codec == "uncompressed" else 4_000,
        "index.interval.bytes": 500,
        "retention.ms": -1,
    }


@pytest.fixture(scope="module", params=CODECS)
def partition(request, tmp_path_factory):
    """(partition directory, its rows, its config) after a clean close."""
    path = tmp_path_factory.mktemp("log")
    rows = make(1500)
    config = _config(request.param)
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=config)
        for at in range(0, len(rows), 70):
            log.append("t", table(rows[at : at + 70]), partition=0)
    return path / "t-0", rows, config


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafka_loads_it_and_changes_nothing(oracle, partition, clean):
    directory, rows, config = partition
    opened = oracle.open(directory, clean=clean, records=True, config=config)
    assert (opened.start, opened.end, opened.count) == (0, len(rows), len(rows))
    assert opened.lso == opened.end
    assert len(opened.segments) > 1
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in opened.records] == rows
    assert [r.offset for r in opened.records] == list(range(len(rows)))
    assert opened.epochs == [(opened.batches[0]["leader_epoch"], 0)]
    assert opened.producers == []
    assert opened.untouched, (opened.changed, opened.created, opened.removed)


def test_kafka_finds_the_same_offsets_by_time(oracle, partition):
    directory, rows, _ = partition
    times = [rows[0][3] + step for step in (*range(-5, 1009, 41), 1009)]
    with sparklog.open(directory.parent) as log:
        ours = [log.offsets_for_times("t", ms)[0] for ms in times]
    theirs = oracle.time(directory, times)
    assert ours == [None if hit is None else hit[0] for hit in theirs]
    assert ours[0] == 0
    assert ours[-1] is None


@pytest.mark.parametrize("check", [[], ["--index-sanity-check"], ["--verify-index-only"]])
def test_dump_finds_no_fault(oracle, partition, check):
    directory, rows, _ = partition
    files = [p for p in sorted(directory.iterdir()) if p.suffix in (".log", ".index", ".timeindex")]
    assert len(files) >= 6
    text = oracle.dump("--files", ",".join(map(str, files)), "--print-data-log", *check)
    for fault in (
        "Mismatches",
        "mismatch",
        "out of order",
        "Non-consecutive",
        "invalid",
        "corrupt",
    ):
        assert fault not in text.replace("isvalid: true", "")
    assert "isvalid: false" not in text
    if not check:
        assert text.count("| offset: ") == len(rows)


def test_snapshots_can_be_dumped(oracle, partition):
    directory, *_ = partition
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots
    for path in snapshots:
        assert f"Dumping {path}" in oracle.dump("--files", path)


def test_idempotent_producers_are_kafkas(oracle, tmp_path):
    """Sequences, epochs and offsets come out of the snapshots as a broker would have them."""
    config = {"internal.segment.bytes": 10_000}
    clock = ManualClock(BASE_MS + 2000)
    with sparklog.open(tmp_path, "rw", clock=clock) as log:
        log.create_topic("t", config=config)
        for number in range(9):
            rows = table(make(20))
            log.append("t", rows, partition=0, producer=(7, 1, 20 * number))
            log.append("t", rows, partition=0)
        log.append("t", table(make(5)), partition=0, producer=(8, 0, 0))
        log.append("t", table(make(5)), partition=0, producer=(8, 0, 0))  # a retry
    for clean in (True, False):
        now = BASE_MS + 60_000
        opened = oracle.open(tmp_path / "t-0", clean=clean, config=config, now_ms=now)
        assert opened.end == 9 * 40 + 5
        first, second = opened.producers
        assert (first["id"], first["epoch"], first["last_sequence"]) == (7, 1, 179)
        assert (first["first_offset"], first["last_offset"]) == (8 * 40, 8 * 40 + 19)
        assert (second["id"], second["epoch"], second["last_sequence"]) == (8, 0, 4)
        assert opened.untouched, (opened.changed, opened.created, opened.removed)


def test_a_log_start_inside_a_segment(oracle, tmp_path):
    rows = make(900)
    with sparklog.open(tmp_path, "rw") as log:
        log.create_topic("t", config={"internal.segment.bytes": 20_000})
        for at in range(0, len(rows), 50):
            log.append("t", table(rows[at : at + 50]), partition=0)
        log.delete_records("t", {0: 333})
        assert from_table(log.read("t").read_all()) == rows[333:]
    text = (tmp_path / "log-start-offset-checkpoint").read_text()
    assert text == "0\n1\nt 0 333\n"
    opened = oracle.open(tmp_path / "t-0", clean=True, log_start=333)
    assert (opened.start, opened.end) == (333, 900)
    assert opened.untouched, (opened.changed, opened.created, opened.removed)
