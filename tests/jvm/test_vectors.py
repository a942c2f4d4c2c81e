"""Batches kept as files, written by Python and by Scala: both read each, now and later.

python -m tests.jvm.test_vectors writes them anew.
"""

from pathlib import Path

import pytest

from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.format.scan import scan
from tests.jvm.building import Row, build, table
from tests.jvm.probe import Probe
from tests.jvm.reading import SOUND, python_reads, scala_reads
from tests.oracle.rows import make

VECTORS = Path(__file__).with_name("vectors")
BATCH_BYTES = 300
ROWS: list[Row] = [(stamp, key, value, headers) for key, value, headers, stamp in make(60)]
ROWS += [(-(2**50), b"early", b"", None), (2**50, b"late", None, []), (-1, None, None, None)]


def written(writer: str, codec: Codec, probe: Probe) -> bytes:
    """What is in a vector if it is written now."""
    if writer == "scala":
        return b"".join(closed.data for closed in build(probe, ROWS, codec, batch=BATCH_BYTES)[0])
    options = {"batch_size": BATCH_BYTES, "timestamp_ms_default": 0}
    return bytes(encode(table(ROWS), codec=codec, **options).data)


def file(writer: str, codec: Codec) -> Path:
    return VECTORS / f"{writer}-{codec.name.lower()}.batches"


@pytest.mark.parametrize("writer", ["python", "scala"])
@pytest.mark.parametrize("codec", list(Codec))
def test_both_read_what_either_wrote(probe: Probe, writer: str, codec: Codec) -> None:
    raw = file(writer, codec).read_bytes()
    found = scan(raw, path="t")
    assert found.end == len(raw)
    places = zip(found.table["position"].tolist(), found.table["size"].tolist(), strict=True)
    batches = [raw[at : at + size] for at, size in places]
    assert len(batches) >= 4
    assert {batch[22] & 7 for batch in batches} == {codec}
    for read in ([python_reads(batch) for batch in batches], scala_reads(probe, batches)):
        assert {status for status, _ in read} == {SOUND}
        records = [record for _, part in read for record in part]
        assert [record.offset for record in records] == list(range(len(ROWS)))
        assert [(r.micros // 1000, r.key, r.value, r.headers) for r in records] == [
            (stamp, key, value, headers or []) for stamp, key, value, headers in ROWS
        ]


def test_without_a_codec_both_write_the_same_bytes(probe: Probe) -> None:
    kept = file("python", Codec.NONE).read_bytes()
    assert kept == file("scala", Codec.NONE).read_bytes()
    assert kept == written("python", Codec.NONE, probe)
    assert kept == written("scala", Codec.NONE, probe)


if __name__ == "__main__":
    VECTORS.mkdir(exist_ok=True)
    jvm = Probe()
    for kind in Codec:
        for name in ("python", "scala"):
            file(name, kind).write_bytes(written(name, kind, jvm))
    jvm.close()
