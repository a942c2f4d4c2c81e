"""The sink of a query: recorded or named, and what reset and fork do for it. Spark: tests/state."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

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
        with pytest.raises(InvalidRequestError, match=r"give --sink (other|delta)"):
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
        ({"sink": "tape"}, "want one of sparklog, files, delta"),
        ({"output": tmp_path, "sink": "kafka"}, "give no other sink"),
        ({"output": tmp_path, "log": tmp_path}, "give no other sink"),
        ({"output": "s3a://bucket/out"}, "a directory of this machine only"),
    ):
        given = {"log": None, "output": None, "sink": None, **wrong}
        with pytest.raises(InvalidRequestError, match=match):
            choose_sink(checkpoint, **given)  # type: ignore[arg-type]
    note(path, *KNOWN[2][:2])
    with pytest.raises(InvalidRequestError, match="writes to Kafka, not to files in"):
        choose_sink(Checkpoint.open(path), log=None, output=str(tmp_path), sink=None)
    with pytest.raises(InvalidRequestError, match="both output and new_output"):
        fork(path, tmp_path / "new", to=3, output=tmp_path)


def test_the_command_says_it_first(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = golden("stateless")
    times = {row.batch: (row.planned_ms or 0) + 1 for row in history(path).batches}
    output = sink_log(tmp_path / "out", 12, times)
    note(path, f"{SINKS}FileStreamSink", f"FileSink[file:{output}]")
    assert run(["checkpoint", "reset", str(path), "--to", "9"]) == 2
    assert "--output" in capsys.readouterr().err
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


def test_an_output_that_is_not_whole_is_not_carried_over(golden: Golden, tmp_path: Path) -> None:
    path, output = golden("stateless"), sink_log(tmp_path / "out", 12)
    (output / "part-3").unlink()
    with pytest.raises(InvalidRequestError, match="part-3 is missing"):
        fork(path, tmp_path / "new", to=9, output=output, new_output=tmp_path / "other")
    output.rename(tmp_path / "moved")
    with pytest.raises(InvalidRequestError, match="the output was moved"):
        fork(path, tmp_path / "new", to=8, output=tmp_path / "moved", new_output=tmp_path / "other")
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidRequestError, match="want a new directory"):
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
