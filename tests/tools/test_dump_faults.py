"""Damaged files: what Kafka's tool prints of them is printed, where it gives up we do."""

import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.cli.app import run
from sparklog.format.batch import HEADER_SIZE, seal
from sparklog.format.producer_snapshot import ProducerEntry, format_snapshot
from sparklog.tools.dump.dump_log import Dump, DumpOptions
from sparklog.tools.dump.log import LogDump, dump_batches
from sparklog.tools.handover.log_handover import hand_over
from tests.format.data import NOW
from tests.oracle import Oracle
from tests.service.logs import fill, flip
from tests.tools.dumps import assert_same, files_of, ours
from tests.tools.test_dump import STYLES, batch, log_of, made

CONFIG = {"internal.segment.bytes": 5000, "index.interval.bytes": 100, "retention.ms": -1}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", config=CONFIG)
        fill(log, "t", 0, 60)
    return path / "t-0"


@pytest.fixture
def partition(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "t-0"))


def first(partition: Path, suffix: str) -> Path:
    return min(partition.glob(f"*{suffix}"))


def rewrite(path: Path, **edits: bytes) -> None:
    """Overwrite entries: at_8=b"..."."""
    raw = bytearray(path.read_bytes())
    for name, data in edits.items():
        at = int(name.removeprefix("at_"))
        raw[at : at + len(data)] = data
    path.write_bytes(raw)


def is_damaged(*files: Path) -> bool:
    dump = Dump([str(f) for f in files], DumpOptions())
    list(dump.lines())
    return dump.damaged


def test_files_of_a_brokers_own_are_for_kafkas_tool(
    tmp_path: Path, oracle: Oracle, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
    hand_over(path)
    snapshot, segment = path / "bootstrap.checkpoint", tmp_path / f"{0:020d}.log"
    shutil.copy(snapshot, segment)
    assert run(["dump-log", "--files", str(snapshot), "--cluster-metadata-decoder"]) == 2
    assert "use kafka-dump-log" in " ".join(capsys.readouterr().err.split())
    for file in (snapshot, segment):
        out, err, failure = ours([file], deep_iteration=True)
        assert "read it with kafka-dump-log" in f"{out}{err}{failure}"
        told = oracle.dump("--cluster-metadata-decoder", "--files", file)
        assert '"type":"TOPIC_RECORD"' in told and '"name":"t"' in told


def test_nothing_is_wrong(partition: Path, oracle: Oracle) -> None:
    for style in STYLES:
        assert_same(oracle, files_of(partition), **style)
    assert not is_damaged(*files_of(partition))


def test_a_torn_tail(partition: Path, oracle: Oracle) -> None:
    log = first(partition, ".log")
    for left in (1, 10, 61, 70):
        log.write_bytes(log.read_bytes()[:-left])
        assert "invalid bytes at the end" in assert_same(oracle, [log], print_data_log=True)
    assert is_damaged(log)


def test_garbage_at_the_end(partition: Path, oracle: Oracle) -> None:
    log = first(partition, ".log")
    good = log.read_bytes()
    log.write_bytes(good + b"\x01" * 17)
    assert "Found 17 invalid bytes" in assert_same(oracle, [log])
    for garbage in (b"\0" * 18, b"\xff" * 200, b"\x01" * 18):
        log.write_bytes(good + garbage)
        assert_same(oracle, [log], deep_iteration=True)


def test_a_flipped_bit(partition: Path, oracle: Oracle) -> None:
    log = first(partition, ".log")
    flip(log, HEADER_SIZE + 12)
    assert "isvalid: false" in assert_same(oracle, [log])
    assert is_damaged(log)
    good = log.read_bytes()
    for position in range(0, HEADER_SIZE + 30):
        log.write_bytes(good)
        flip(log, position, 1 << position % 8)
        assert_same(oracle, [log], print_data_log=True)


def test_lines_before_the_fault_are_printed(partition: Path) -> None:
    log = first(partition, ".log")
    whole, _, _ = ours([log], print_data_log=True)
    size = int.from_bytes(log.read_bytes()[8:12], "big") + 12
    rewrite(log, **{f"at_{3 * size + 8}": struct.pack(">i", 3)})
    out, _, failure = ours([log], print_data_log=True)
    assert failure is not None
    assert "batch length 3 is less than the minimum" in str(failure)
    assert out.count("baseOffset") == 3
    assert whole.startswith(out)


def test_a_file_that_becomes_shorter() -> None:
    """The dump ends, whatever is taken away while it reads."""
    head = struct.pack(">qiib", 0, 1988, 0, 2)  # of a batch of 2000 bytes

    class Cut:
        path = "0.log"

        def size(self) -> int:
            return 5000

        def pread(self, size: int, at: int) -> bytes:
            return head[at : at + size]

    file: Any = Cut()
    with pytest.raises(sparklog.DataCorruptionError, match="became shorter while it was read"):
        list(dump_batches(file, max_bytes=2**31 - 1, lines=None, found=LogDump()))


def test_an_index_that_doesnt_fit(partition: Path, oracle: Oracle) -> None:
    index = first(partition, ".index")
    rewrite(index, at_0=struct.pack(">i", 1), at_16=struct.pack(">i", 5))
    for style in ({}, {"verify_index_only": True}):
        assert "Mismatches in :" in assert_same(oracle, [index], **style)
    assert is_damaged(index)
    for position in (1, -1, 2**31 - 1, first(partition, ".log").stat().st_size):
        rewrite(index, at_4=struct.pack(">i", position))
        assert_same(oracle, [index])
    index.write_bytes(index.read_bytes()[:-3])
    assert_same(oracle, [index], index_sanity_check=True)
    index.write_bytes(b"")
    assert "is empty." in assert_same(oracle, [index], index_sanity_check=True)
    rewrite(index, at_0=struct.pack(">ii", -5, 0))
    assert_same(oracle, [index], index_sanity_check=True)


def test_an_index_with_zeros_behind(partition: Path, oracle: Oracle) -> None:
    for suffix in (".index", ".timeindex"):
        path = first(partition, suffix)
        path.write_bytes(path.read_bytes() + bytes(240))
        for style in STYLES[:7]:
            assert_same(oracle, [path], **style)


def test_a_time_index_in_disorder(partition: Path, oracle: Oracle) -> None:
    times = first(partition, ".timeindex")
    raw = times.read_bytes()
    times.write_bytes(raw[12:24] + raw[:12] + raw[24:])
    assert "Found out of order timestamp in :" in assert_same(oracle, [times])
    times.write_bytes(struct.pack(">q", NOW - 7) + raw[8:])
    assert "Found timestamp mismatch in :" in assert_same(oracle, [times])
    times.write_bytes(raw[:8] + struct.pack(">i", 2) + raw[12:])
    assert "Indexed offset: 2, found log offset: 3" in assert_same(oracle, [times])
    times.write_bytes(raw[:8] + struct.pack(">i", 9999) + raw[12:])
    assert "found log offset: -1" in assert_same(oracle, [times])
    assert is_damaged(times)


def test_indexes_without_their_log(partition: Path) -> None:
    first(partition, ".log").unlink()
    for suffix in (".index", ".timeindex"):
        path = first(partition, suffix)
        before = sorted(partition.iterdir())
        _, _, failure = ours([path])
        assert f"{path.with_suffix('.log')} does not exist" in str(failure)
        assert sorted(partition.iterdir()) == before  # Kafka's tool would make empty indexes


def test_gaps_are_no_damage(tmp_path: Path, oracle: Oracle) -> None:
    path = log_of(
        tmp_path,
        *(batch((NOW, b"k", b"v"), base_offset=base) for base in (100, 101, 105, 103, 104)),
    )
    text = assert_same(oracle, [path], deep_iteration=True)
    assert "  105 is followed by 103\n  101 is followed by 105\n" in text
    assert not is_damaged(path)


def test_snapshots(tmp_path: Path, oracle: Oracle) -> None:
    path = tmp_path / "00000000000000000009.snapshot"
    good = format_snapshot(
        [
            ProducerEntry(producer_id=1, producer_epoch=2, last_sequence=3, last_offset=8,
                          offset_delta=5, timestamp=NOW, coordinator_epoch=4),
            ProducerEntry(producer_id=2, producer_epoch=0, timestamp=5, current_txn_first_offset=4),
        ]
    )  # fmt: skip
    counts = [good[:6] + count + good[10:] for count in (b"\xff" * 4, b"\x7f" * 4, bytes(4))]
    cuts = [good[:size] for size in (0, 1, 8, len(good) - 1)]
    for raw in (good, *cuts, *counts, b"\0\2" + good[2:], good + b"x", good[::-1]):
        path.write_bytes(raw)
        assert_same(oracle, [path])
    assert is_damaged(path)


def test_aborted_transactions(tmp_path: Path, oracle: Oracle) -> None:
    path = tmp_path / "00000000000000000009.txnindex"
    entry = struct.pack(">qqqq", 1, 10, 12, 13)
    for version in (b"\0\0", b"\0\1", b"\xff\xff", b"\1\0"):
        path.write_bytes(b"\0\0" + entry + version + entry + b"xxx")
        assert_same(oracle, [path])


def test_fields_that_cant_be(tmp_path: Path, oracle: Oracle) -> None:
    """Batches with a right CRC and wrong contents: some of them Kafka's tool prints."""
    good = batch((NOW, b"k", b"v"), (NOW, b"k", b"w"), producer=(5, 1, 7))
    edits: list[tuple[int, str, int]] = [
        (16, "b", 3), (16, "b", -1), (21, "h", 5), (21, "h", 0x40), (23, "i", 0), (23, "i", -4),
        (27, "q", 2**63 - 1), (35, "q", -(2**63)), (53, "i", -5), (53, "i", 2**31 - 1),
        (57, "i", -1), (57, "i", 0), (57, "i", 1), (57, "i", 3), (0, "q", -5), (0, "q", 2**63 - 1),
    ]  # fmt: skip
    for at, code, value in edits:
        raw = bytearray(good)
        struct.pack_into(">" + code, raw, at, value)
        seal(raw)
        path = log_of(tmp_path, good, bytes(raw), good)
        for style in STYLES[:4]:
            assert_same(oracle, [path], **style)


MUTATIONS = ("flip", "cut", "garbage", "zeros", "swap", "number")


def mutate(rng: random.Random, path: Path) -> None:
    raw = bytearray(path.read_bytes())
    kind = rng.choice(MUTATIONS) if raw else "garbage"
    width = {".index": 8, ".timeindex": 12, ".txnindex": 34}.get(path.suffix, 1)
    if kind == "flip":
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del raw[rng.randrange(len(raw)) :]
    elif kind == "garbage":
        raw += rng.randbytes(rng.randint(1, 100))
    elif kind == "zeros":
        raw += bytes(rng.choice([1, 8, 12, 16, 24, 34, 40]))
    elif kind == "swap":
        raw[:width], raw[width : 2 * width] = raw[width : 2 * width], raw[:width]
    else:
        at = rng.randrange(len(raw))
        raw[at : at + 4] = struct.pack(">i", rng.choice([-1, 0, 1, 2**31 - 1, -(2**31), 300]))
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 60))]
)
def test_random_damage(seed: int, tmp_path: Path, oracle: Oracle) -> None:
    rng = random.Random(seed)
    files = made(tmp_path / "log", seed)
    for number in range(15):
        copy = Path(shutil.copytree(files[0].parent, tmp_path / f"copy-{number}"))
        target = copy / rng.choice(files).name
        mutate(rng, target)
        group = [target] if rng.random() < 0.6 else files_of(copy)
        assert_same(oracle, group, **rng.choice(STYLES))
