"""Checkpoints in an object store, in the driver and without Spark; the store is a directory."""

import re
import struct
from pathlib import Path

import pytest

from tests import jars
from tests.depth import by_depth
from tests.jvm.probe import SOURCES, Probe, pack

_SCALA = (SOURCES / "StoredCheckpoints.scala").read_text()
SCENARIOS = re.findall(r'^    "([^"]+)" -> \{ \w+ =>', _SCALA, re.M)
assert len(SCENARIOS) == _SCALA.count('" -> {')


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenarios(probe: Probe, tmp_path: Path, scenario: str) -> None:
    probe.call("stored checkpoint", pack([str(tmp_path).encode(), scenario.encode()]))


def test_one_of_many_creators_wins(probe: Probe, tmp_path: Path) -> None:
    """Also where the rename of the file system would let several win."""
    names = by_depth(small=200, ci=2000, all=20_000)
    asked = pack([f"file:{tmp_path}".encode()]) + struct.pack(">ii", 4, names)
    answer = probe.call("objects created at once", asked)
    assert struct.unpack(f">{names}i", answer) == (1,) * names


@pytest.mark.deep
def test_memory_of_many_partitions(tmp_path: Path) -> None:
    """2,000 partitions, each with the files of 100 micro-batches, fit into a heap of 512 MiB."""
    with jars.or_skip("probe"):
        small = Probe("-Xmx512m")
    partitions, batches = 2000, by_depth(small=110, ci=110, all=320)
    asked = pack([str(tmp_path).encode()]) + struct.pack(">ii", partitions, batches)
    memory, files = struct.unpack(">qq", small.call("many partitions", asked))
    small.close()
    print(f"{files} files: {memory / 2**20:.0f} MiB, of which up to 64 MiB are contents")
    assert files == partitions * 100
    assert (memory - (64 << 20)) / files < 600
