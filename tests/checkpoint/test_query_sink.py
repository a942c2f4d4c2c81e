"""The sink of a query: recorded or named, and what reset and fork do for it. Spark: tests/state."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import sparklog
from sparklog.checkpoint.file_sink_cut import finish_cut
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.fork import fork
from sparklog.checkpoint.history import history
from sparklog.checkpoint.query_sink import SinkKind, choose_sink, recorded_sink
from sparklog.checkpoint.reset import reset
from sparklog.checkpoint.spark_files.file_sink_log import FileSinkLog
from sparklog.checkpoint.unfinished_reset import UnfinishedReset
from sparklog.checkpoint.verify import verify
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.log.commit import Identity
from tests.checkpoint.conftest import Golden

SINKS = "org.apache.spark.sql.execution.streaming.sinks."
KNOWN = [
    (f"{SINKS}FileStreamSink", "FileSink[file:/out]", SinkKind.FILES),
    ("org.apache.spark.sql.delta.sources.DeltaSink", "DeltaSink[s3://t]", SinkKind.DELTA),
    ("org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable", "Kafka", SinkKind.KAFKA),
    (f"{SINKS}ForeachBatchSink", "ForeachBatchSink", SinkKind.FOREACH_BATCH),
    ("org.apache.spark.sql.execution.datasources.noop.NoopTable$", "noop", SinkKind.OTHER),
    ("x.PythonTable", "sparklog", SinkKind.LOG),
]


def note(path: Path, class_name: str, description: str) -> None:
    fields = {"name": "q", "sink": {"class": class_name, "description": description}}
    (path / "sparklog.query").write_text(json.dumps(fields))


def sink_log(output: Path, batches: int, times: Mapping[int, int] | None = None) -> Path:
    """An output of that many batches, a file each, written at these times."""
    (output / "_spark_metadata").mkdir(parents=True)
    for batch in range(batches):
        file = output / f"part-{batch}"
        file.write_text(str(batch))
        line = json.dumps(
            {"path": f"file://{file}", "modificationTime": (times or {}).get(batch, batch)}
        )
        (output / "_spark_metadata" / str(batch)).write_text(f"v1\n{line}")
    return output


@pytest.mark.parametrize(("class_name", "description", "kind"), KNOWN)
def test_known_sinks(golden: Golden, class_name: str, description: str, kind: SinkKind) -> None:
    """Those that skip batches are refused unless the caller names them; others are announced."""
    path = golden("stateless")
    assert recorded_sink(Checkpoint.open(path)).kind is SinkKind.UNKNOWN
    note(path, class_name, description)
    checkpoint = Checkpoint.open(path)
    found = recorded_sink(checkpoint)
    assert (found.kind, found.query_name) == (kind, "q")
    assert verify(path).findings == []
    if kind in (SinkKind.FILES, SinkKind.DELTA):
        with pytest.raises(InvalidRequestError, match=r"use --sink (other|delta)"):
            choose_sink(checkpoint, log=None, output=None, sink=None)
        kind = SinkKind.OTHER if kind is SinkKind.FILES else kind
        found = choose_sink(checkpoint, log=None, output=None, sink=kind)
    assert choose_sink(checkpoint, log=None, output=None, sink=kind).kind is kind
    assert found.effect(3).startswith("Sink: ")
    if kind is SinkKind.LOG:
        with pytest.raises(InvalidRequestError, match="Name the log"):
            reset(path, to=9, dry_run=True)
        reset(path, to=9, sink="other", dry_run=True)
        assert choose_sink(checkpoint, log="/log", output=None, sink=None).effect(3) == ""


def test_contradictions(golden: Golden, tmp_path: Path) -> None:
    path = golden("stateless")
    checkpoint = Checkpoint.open(path)
    for wrong, match in (
        ({"sink": "files"}, "Name the directory"),
        ({"sink": "tape"}, "must be one of sparklog, files, delta"),
        ({"output": tmp_path, "sink": "kafka"}, "leave out log and other sinks"),
        ({"output": tmp_path, "log": tmp_path}, "leave out log and other sinks"),
        ({"output": "s3a://bucket/out"}, "a directory of this machine only"),
    ):
        given = {"log": None, "output": None, "sink": None, **wrong}
        with pytest.raises(InvalidRequestError, match=match):
            choose_sink(checkpoint, **given)  # type: ignore[arg-type]
    files = choose_sink(checkpoint, log=None, output=str(tmp_path), sink=None)  # and no other
    assert files.kind is SinkKind.FILES
    note(path, *KNOWN[2][:2])
    advice = r"writes to Kafka, .*: leave out --output, or use --sink files"
    with pytest.raises(InvalidRequestError, match=advice):
        choose_sink(Checkpoint.open(path), log=None, output=str(tmp_path), sink=None)
    for advised in ({"output": None, "sink": None}, {"output": str(tmp_path), "sink": "files"}):
        sink = choose_sink(Checkpoint.open(path), log=None, **advised)
        assert sink.kind is (SinkKind.FILES if advised["sink"] else SinkKind.KAFKA)
    note(path, f"{SINKS}FileStreamSink", f"FileSink[file:{tmp_path}/out]")
    elsewhere = str(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequestError, match=rf"writes to .*/out, not to {elsewhere}: use"):
        choose_sink(Checkpoint.open(path), log=None, output=elsewhere, sink=None)
    for output, sink_name in ((elsewhere, "files"), (str(tmp_path / "out"), None)):
        sink = choose_sink(Checkpoint.open(path), log=None, output=output, sink=sink_name)
        assert sink.output == output
    with pytest.raises(InvalidRequestError, match="output and new_output must be"):
        fork(path, tmp_path / "new", to=3, output=tmp_path)


def test_the_command_says_it_first(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = golden("stateless")
    times = {row.batch: (row.planned_ms or 0) + 1 for row in history(path).batches}
    output = sink_log(tmp_path / "out", 12, times)
    note(path, f"{SINKS}FileStreamSink", f"FileSink[file:{output}]")
    assert run(["checkpoint", "reset", str(path), "--to", "9"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "Name the directory (--output), so that the log of the sink is changed as well" in said
    assert run(["checkpoint", "reset", str(path), "--to", "9", "--output", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "use the first directory, or add --sink files if the output was moved" in said
    assert run(["checkpoint", "reset", str(path), "--to", "9", "--output", str(output)]) == 0
    assert "is cut from batch 11 to 9, with 10 files left" in capsys.readouterr().err
    assert FileSinkLog.open(LOCAL, str(output)).newest == 9
    new = str(tmp_path / "new")
    outputs = ["--output", str(output), "--new-output", f"{new}-out"]
    assert run(["checkpoint", "fork", str(path), new, "--to", "8", *outputs]) == 0
    assert f"become the output {new}-out" in capsys.readouterr().err
    assert sorted(p.name for p in Path(f"{new}-out").glob("part-*")) == [
        f"part-{n}" for n in range(9)
    ]
    with pytest.raises(InvalidRequestError, match="output and new_output must be used together"):
        fork(path, f"{new}er", to=8, output=output)
    fork(path, f"{new}er", to=8, sink="other")
    fork(path, f"{new}est", to=8, output=output, new_output=f"{new}est-out")
    assert FileSinkLog.open(LOCAL, f"{new}est-out").newest == 8
    output.rename(tmp_path / "moved")
    moved = ["--output", str(tmp_path / "moved"), "--sink", "files"]
    assert run(["checkpoint", "reset", str(path), "--to", "8", *moved]) == 0
    assert FileSinkLog.open(LOCAL, str(tmp_path / "moved")).newest == 8


@pytest.mark.parametrize("named", ["log", "output", "sink"])
def test_an_unknown_sink_is_named(golden: Golden, tmp_path: Path, named: str) -> None:
    path = golden("stateless")
    effect = reset(path, to=9, dry_run=True).sink
    assert "Name the sink: --log LOG, --output DIRECTORY for Spark's file sink, or --sink" in effect
    if named == "log":
        with sparklog.open(tmp_path / "log", "rw") as log:
            log.commit(
                [], identity=Identity(writer=history(path).query_id or "", batch=9, fingerprint="f")
            )
    given = {
        "log": {"log": tmp_path / "log"},
        "output": {"output": sink_log(tmp_path / "out", 12)},
        "sink": {"sink": "kafka"},
    }[named]
    assert "Name the sink" not in reset(path, to=9, **given).sink  # type: ignore[arg-type]


def test_an_output_that_is_not_whole_is_not_carried_over(golden: Golden, tmp_path: Path) -> None:
    path, output = golden("stateless"), sink_log(tmp_path / "out", 12)
    (output / "part-3").unlink()
    with pytest.raises(InvalidRequestError, match="part-3 is missing"):
        fork(path, tmp_path / "new", to=9, output=output, new_output=tmp_path / "other")
    output.rename(tmp_path / "moved")
    with pytest.raises(InvalidRequestError, match="the output was moved"):
        fork(path, tmp_path / "new", to=8, output=tmp_path / "moved", new_output=tmp_path / "other")
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidRequestError, match="must be a new directory"):
        fork(path, tmp_path / "new", to=8, output=tmp_path / "moved", new_output=tmp_path / "other")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["moved", "other", "stateless"]


@pytest.mark.parametrize("done", range(4))
def test_a_cut_that_was_broken_off_is_completed(golden: Golden, tmp_path: Path, done: int) -> None:
    """After each of its steps, by the next reset, which finds the note."""
    path, output = golden("stateless"), sink_log(tmp_path / "out", 12)
    reset(path, to=9, output=output)
    log, before = output / "_spark_metadata", output / "_spark_metadata.before"
    if done < 2:
        log.rename(output / "_spark_metadata.next")
    if done == 0:
        log.mkdir()
        (log / "7").write_text("v1")
    if done in (1, 2):
        before.mkdir()
        (before / "7").write_text("v1")
    noted = UnfinishedReset(output=str(output), batch=9, time_ms=1)
    (path / "sparklog.reset").write_bytes(noted.encode())
    reset(path, to=9, output=output)
    assert not (path / "sparklog.reset").exists()
    assert FileSinkLog.open(LOCAL, str(output)).newest == 9
    assert [p.name for p in output.glob("_spark*")] == ["_spark_metadata"]
    finish_cut(LOCAL, str(output))
    assert FileSinkLog.open(LOCAL, str(output)).newest == 9
