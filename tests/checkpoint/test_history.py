"""History of checkpoints that Spark made."""

import json
import re
from pathlib import Path

import pytest

from sparklog.checkpoint import reset
from sparklog.checkpoint.history import history
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LocalFileSystem
from sparklog.fs.files import LocalFile
from tests.checkpoint.conftest import NAMES, Golden

FIRST_AND_LAST = {
    "stateless": (7, 11, 6), "hdfs": (8, 13, 7), "hdfs-zstd": (0, 5, 0), "join": (0, 5, 0),
    "files": (0, 11, 0), "rocksdb": (0, 5, 0), "changelog": (9, 13, 8), "ids": (0, 9, 0),
    "processed": (0, 5, 0), "sources-by-name": (0, 3, 0), "global": (0, 5, 0),
    "limit": (0, 3, 0), "ids-lzf": (0, 5, 0),
}  # fmt: skip


def reachable(path: Path) -> list[int]:
    return [row.batch for row in history(path).batches if row.obstacle is None]


@pytest.mark.parametrize("name", NAMES)
def test_what_can_be_gone_back_to(golden: Golden, name: str) -> None:
    found = history(golden(name))
    first, last, oldest = FIRST_AND_LAST[name]
    assert [r.batch for r in found.batches if r.obstacle is None] == list(range(first, last + 1))
    assert found.batches[0].batch == oldest
    assert found.query_id is not None
    assert found.table().num_rows == len(found.batches)
    json.dumps(found.to_dict())
    assert found._repr_html_().count("<tr>") == 1 + len(found.batches)


def test_a_batch(golden: Golden) -> None:
    found = history(golden("join"))
    row = found.batches[3]
    assert row.sources == {name: {"offset": 160, "timestamp": 4000} for name in "01"}
    assert row.rows == {"0": 40, "1": 40}
    assert row.state_version == 4
    assert row.planned_ms is not None
    assert row.committed_ms is not None
    assert row.planned_ms < row.committed_ms
    last = found.batches[-1]
    assert (last.committed_ms, last.state_version, last.obstacle) == (
        None,
        None,
        "the batch is not committed",
    )
    assert found.table().column("can_go_back").to_pylist() == [True] * 6 + [False]


def test_lost_state_files(golden: Golden) -> None:
    hdfs = golden("hdfs")
    (hdfs / "state/0/1/12.delta").unlink()
    assert reachable(hdfs) == [8, 9, 10]
    (hdfs / "state/0/0/10.snapshot").unlink()
    assert reachable(hdfs) == [8, 9, 10]  # from the snapshot before, by the deltas
    (hdfs / "state/0/0/5.snapshot").unlink()
    assert reachable(hdfs) == []
    changelog = golden("changelog")
    (changelog / "state/0/0/12.zip").unlink()
    assert reachable(changelog) == [9, 10, 11, 12, 13]
    next((changelog / "state/0/0/SSTs").glob("000008-*.sst")).unlink()
    assert reachable(changelog) == [9, 10, 11, 12, 13]  # from version 0 by all changelogs
    (changelog / "state/0/0/2.changelog").unlink()
    assert reachable(changelog) == []
    assert "needs state/0/0/SSTs/000008" in (history(changelog).batches[-2].obstacle or "")


def test_lost_files_with_ids(golden: Golden) -> None:
    """The changelog of the wanted version tells which snapshots are of its branch."""
    ids = golden("ids")
    store = ids / "state/0/0"
    (other,) = store.glob("8_*.zip")
    other.rename(store / "8_of-another-branch.zip")
    assert reachable(ids) == [0, 1, 2, 3, 4, 5, 6, 7]
    (store / "8_of-another-branch.zip").rename(other)
    (lost,) = store.glob("6_*.changelog")
    lost.unlink()
    assert reachable(ids) == [0, 1, 2, 3, 4, 7, 8, 9]


def test_a_partition_that_is_gone_as_a_whole(golden: Golden) -> None:
    import shutil

    path = golden("join")
    shutil.rmtree(path / "state/0/1/left-keyWithIndexToValue")
    row = history(path).batches[2]
    assert row.obstacle == (
        "there is no state of operator 0, partition 1, left-keyWithIndexToValue"
    )


def test_a_file_source_needs_its_own_log(golden: Golden) -> None:
    path = golden("files")
    (path / "sources/0/10").unlink()
    assert reachable(path) == list(range(10))


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="is not the checkpoint"):
        history(tmp_path)


def test_a_damaged_commit_is_told(golden: Golden) -> None:
    path = golden("hdfs")
    (path / "commits/12").write_bytes(b"")
    assert history(path).batches[-2].obstacle is not None
    (path / "offsets/12").write_bytes(b"junk")
    with pytest.raises(DataCorruptionError, match="offsets/12"):
        history(path)


def test_what_spark_removes_meanwhile_is_left_out(golden: Golden) -> None:
    path = golden("stateless")

    class Purging(LocalFileSystem):
        """Spark removes a plan as soon as the first one is read."""

        def open(self, path_: str, *, create: bool = False, write: bool = False) -> LocalFile:
            if path_.endswith("offsets/6"):
                (path / "offsets/8").unlink(missing_ok=True)
            return super().open(path_, create=create, write=write)

    found = history(path, fs=Purging())
    assert [row.batch for row in found.batches] == [6, 7, 10, 11, 12]  # 9 shows rows since 8


def test_by_a_link(golden: Golden) -> None:
    path = golden("stateless")
    link = path.with_name("link")
    link.symlink_to(path)
    assert history(link).path == str(path)
    reset(link, to=9)
    assert history(link).batches[-1].batch == 9
    assert link.is_symlink()


def test_a_watermark_beyond_the_calendar(golden: Golden) -> None:
    """One row whose time is in microseconds is enough."""
    path = golden("hdfs")
    file = path / "offsets/12"
    plan = re.sub(r'"batchWatermarkMs":\d+', f'"batchWatermarkMs":{10**15}', file.read_text())
    file.write_text(plan)
    found = history(path)
    row = next(row for row in found.batches if row.batch == 12)
    assert (row.watermark_ms, row.to_dict()["watermark"]) == (10**15, f"{10**15} ms")
    assert found.table().num_rows == len(found.batches)


def test_offsets_that_were_edited_by_hand(golden: Golden) -> None:
    path = golden("sources-by-name")
    before = history(path).batches
    for file in (path / "offsets").glob("[0-9]*"):
        file.write_text(file.read_text() + "\n")
    assert history(path).batches == before
