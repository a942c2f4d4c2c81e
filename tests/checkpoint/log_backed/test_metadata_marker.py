"""What Spark's own manager finds in place of a log-backed checkpoint's metadata; two histories."""

import json
import shutil
from pathlib import Path

import pytest

from sparklog.checkpoint import archive, export, fork, history, import_, reset, restore, verify
from sparklog.checkpoint.log_backed.metadata_marker import MARKER
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.sink.batch_identity import identify_from_query
from sparklog.sink.options import parse
from tests.checkpoint.conftest import Golden

NAME = "changelog"


def has_marker(path: Path) -> bool:
    return (path / "metadata").read_bytes() == MARKER


def test_it_stays_where_the_log_is(golden: Golden, tmp_path: Path) -> None:
    """Through import, fork, reset, archive and restore; and goes with the export."""
    path = golden(NAME)
    written = (path / "metadata").read_bytes()
    assert isinstance(json.loads(MARKER)["id"], list)  # no text, which Spark would take
    import_(path)
    assert has_marker(path)
    assert import_(path).files == 0  # it is none
    assert has_marker(path)
    known = history(path).query_id
    assert known == json.loads(written)["id"]
    batch = history(path).batches[-3].batch
    fork(path, tmp_path / "forked", to=batch)
    assert has_marker(tmp_path / "forked")
    reset(path, to=batch)
    assert has_marker(path)
    archive(path, (tmp_path / "points").as_uri())
    restore((tmp_path / "points").as_uri(), tmp_path / "restored")
    for copy in (path, tmp_path / "forked", tmp_path / "restored"):
        assert has_marker(copy)
        assert history(copy).query_id == known
        assert verify(copy).ok
    export(path)
    assert (path / "metadata").read_bytes() == written
    assert verify(path).findings == []


def test_a_mark_without_a_record_is_a_loss(golden: Golden) -> None:
    path = golden(NAME)
    import_(path)
    shutil.rmtree(path / "sparklog" / "metadata-0")
    assert [f.file for f in verify(path).findings if f.what == "the file is missing"] == [
        str(path / "metadata")
    ]
    export(path)
    assert not (path / "metadata").exists()


@pytest.mark.parametrize("file", ["metadata", "offsets/{}", "commits/{}", "offsets/{}+"])
def test_two_histories(golden: Golden, file: str) -> None:
    """Whatever a session without the manager left, verify names it; a cut-off import is none."""
    path = golden(NAME)
    copy = shutil.copytree(path, path.with_name("copy"))
    import_(path)
    last = max(int(p.name) for p in (copy / "commits").glob("[0-9]*"))
    for same in ("metadata", f"offsets/{last}", f"commits/{last}"):
        shutil.copy(copy / same, path / same)  # cut off between records and files
    assert verify(path).ok
    number = last + 5 if file.endswith("+") else last
    wrong = file.format(number).rstrip("+")
    (path / wrong).write_bytes(b'{"id":"other"}')
    found = [f for f in verify(path).findings if "two histories" in f.what]
    assert [f.file for f in found] == [str(path / wrong)]
    for call in (
        lambda: history(path),
        lambda: archive(path, (path.parent / "points").as_uri()),
        lambda: export(path),
    ):
        with pytest.raises(DataCorruptionError, match="two histories"):
            call()


def test_a_sink_of_a_session_without_the_manager_is_refused(golden: Golden, tmp_path: Path) -> None:
    """As older versions left it: without a marker, so that Spark's own manager began from 0."""
    path = golden(NAME)
    import_(path)
    last = history(path).batches[-1].batch
    for other, data in (("metadata", '{"id":"another"}'), (f"offsets/{last}", "v1\n{}\n-")):
        (path / other).write_text(data)
    given = {"path": tmp_path / "log", "checkpointLocation": str(path), "writerId": "w"}
    advice = "Stop the query, build the session .*, and list the files .*: sparklog checkpoint"
    with pytest.raises(InvalidRequestError, match=advice):
        identify_from_query(parse(given), None, last)
    others = [f.file for f in verify(path).findings if "two histories" in f.what]
    assert others == [str(path / "metadata"), str(path / f"offsets/{last}")]
    for other in others:
        Path(other).unlink()
    assert identify_from_query(parse(given), None, last).identity.batch == last


def test_an_import_that_was_cut_off_is_one_history(golden: Golden) -> None:
    """Some records, all files: and so it is when the query went on before the import did."""
    path = golden(NAME)
    copy = shutil.copytree(path, path.with_name("copy"))
    import_(path)
    first, *_, last = sorted(int(p.name) for p in (copy / "commits").glob("[0-9]*"))
    partition = CheckpointPartition(LOCAL, str(path / "sparklog" / "commits-0"))
    append(partition, [Record(str(n), None, 0) for n in range(first + 1, last)])
    for n in range(first, last):  # the last record is what was written since
        shutil.copy(copy / "commits" / str(n), path / "commits" / str(n))
    assert not [f for f in verify(path).findings if "two histories" in f.what]


def test_an_ordinary_one_that_goes_on_as_a_log_is_one_history(golden: Golden) -> None:
    """Its files are older than the log's records."""
    path = golden(NAME)
    copy = shutil.copytree(path, path.with_name("copy"))
    import_(path)
    older = history(path).batches[0].batch - 1
    for directory in ("offsets", "commits"):
        newest = max((copy / directory).glob("[0-9]*"), key=lambda p: int(p.name))
        shutil.copy(newest, path / directory / str(older))
    assert not [f for f in verify(path).findings if "two histories" in f.what]
