"""One path at a time, and the sink that asks so for a micro-batch's plan."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

import sparklog
from sparklog.checkpoint import history, import_, reset
from sparklog.checkpoint.log_backed.file_lookup import FileLookup
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.sink.batch_identity import identify_from_checkpoint, identify_from_query
from sparklog.sink.options import parse
from sparklog.sink.query import Query
from sparklog.testing.crashfs import CrashFS
from tests.checkpoint.conftest import Golden
from tests.checkpoint.views import commit, load, view


@pytest.mark.parametrize("backed", [False, True])
def test_every_path(golden: Golden, backed: bool) -> None:
    path = golden("changelog")
    if backed:
        import_(path)
    lookup = FileLookup(str(path))
    for name, content in view(path).items():
        assert lookup.read(name) == lookup.read(name, durable=True) == content
    assert lookup.read("offsets/99") is None


def test_it_sees_what_comes_and_what_took_its_place(golden: Golden) -> None:
    path = golden("stateless")
    import_(path)
    lookup = FileLookup(str(path))
    assert lookup.read("offsets/13") is None
    append(CheckpointPartition(LOCAL, str(path / "sparklog/offsets-0")), [Record("13", b"x", 1)])
    assert lookup.read("offsets/13") == b"x"
    reset(path, to=9)
    assert lookup.read("offsets/13") is None
    assert lookup.read("offsets/9") is not None


def test_what_it_reads_is_durable(golden: Golden) -> None:
    path = golden("stateless")
    import_(path)
    fs = CrashFS()
    load(fs, path, "/c")
    with fs.open("/c/sparklog/offsets-0/00000000000000000000.log", write=True) as file:
        file.pwrite(file.pread(file.size(), 0), 0)  # written, not synced
    assert FileLookup("/c", fs).read("offsets/12", durable=True) == view(path)["offsets/12"]
    assert FileLookup("/c", fs.crash_clone(mode="strict")).read("offsets/12") is not None


@pytest.mark.parametrize("backed", [False, True])
def test_the_sink_finds_plan_and_query(golden: Golden, tmp_path: Path, backed: bool) -> None:
    path = golden("stateless")
    query = history(path).query_id
    plan = view(path)["offsets/12"]
    if backed:
        import_(path)
    options = parse({"path": str(tmp_path), "checkpointLocation": f"file:{path}"})
    found = identify_from_checkpoint(options, 12)
    assert (found.identity.writer, found.identity.batch) == (query, 12)
    assert found.identity.fingerprint == hashlib.sha256(plan).hexdigest()


@pytest.mark.parametrize("file", ["metadata", "offsets/12"])
def test_the_sink_sees_a_query_that_began_beside_the_log(
    golden: Golden, tmp_path: Path, file: str
) -> None:
    """Under another id, or with another plan; an ordinary session on what older versions left."""
    path = golden("stateless")
    import_(path)
    options = parse({"path": str(tmp_path), "checkpointLocation": str(path)})
    assert identify_from_checkpoint(options, 12)
    (path / "metadata").unlink()
    assert identify_from_checkpoint(options, 12)
    mine = Query(history(path).query_id or "", "run", str(path), "app", None)
    assert identify_from_query(options, mine, 12)
    with pytest.raises(InvalidRequestError, match="without sparklog's checkpoint manager"):
        identify_from_query(options, dataclasses.replace(mine, id="another"), 12)
    (path / file).write_bytes(b'{"id":"other"}')
    with pytest.raises(InvalidRequestError, match="without sparklog's checkpoint manager"):
        identify_from_checkpoint(options, 12)


def test_the_sink_completes_a_reset(golden: Golden, tmp_path: Path) -> None:
    path, log = golden("stateless"), str(tmp_path / "log")
    query = history(path).query_id or ""
    with sparklog.open(log, mode="rw") as opened:
        opened.create_topic("t")
        for batch in range(9, 13):
            commit(opened, query, batch)
    note = {"log": log, "writer": query, "batch": 9, "time": 1}
    (path / "sparklog.reset").write_text(json.dumps(note))
    options = parse({"path": log, "checkpointLocation": str(path)})
    identity = identify_from_checkpoint(options, 10).identity
    assert not (path / "sparklog.reset").exists()
    with sparklog.open(log, mode="rw") as opened:
        assert opened.committed(identity) is None


def test_damage_is_told(golden: Golden) -> None:
    path = golden("stateless")
    import_(path)
    log = path / "sparklog/offsets-0/00000000000000000000.log"
    raw = bytearray(log.read_bytes())
    raw[200] ^= 1
    log.write_bytes(raw)
    with pytest.raises(DataCorruptionError, match="record of the file 6 is damaged"):
        FileLookup(str(path)).read("offsets/12")
