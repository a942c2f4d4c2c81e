"""Files of a killed writer's log that are older than its ledger, or missing: the ledger decides."""

from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.common import TopicPartition
from sparklog.log.log import home_of
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.home import commits_of

NAMES = ("sparklog.lock", "sparklog.watermarks")


def row(value: str) -> pa.Table:
    return pa.table({"value": [value]})


def values(log: sparklog.Log) -> list[bytes]:
    return log.read("t", columns=["value"]).read_all().column("value").to_pylist()


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    """Build a log whose writer was killed; also returns its files before the last two commits."""
    path = tmp_path / "log"
    log = sparklog.open(path, "rw")
    log.create_topic("t", config={"max.message.bytes": 12345})
    log.append("t", row("first"))
    before = {name: (path / name).read_bytes() for name in NAMES}
    log.append("t", row("second"))
    log.append("t", row("third"))
    home_of(log).abandon("killed")
    return path, before


def put(path: Path, data: bytes) -> None:
    """Write in place, so that the file's inode stays."""
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


def test_an_older_lock_page_hides_no_commit(killed: tuple[Path, dict[str, bytes]]) -> None:
    path, before = killed
    put(path / "sparklog.lock", before["sparklog.lock"])
    with sparklog.open(path, "rw") as log:
        assert commits_of(log).state.ends[TopicPartition("t", 0)] == 3
    assert values(sparklog.open(path)) == [b"first", b"second", b"third"]


def test_older_watermarks_hide_no_commit(killed: tuple[Path, dict[str, bytes]]) -> None:
    path, before = killed
    put(path / "sparklog.watermarks", before["sparklog.watermarks"])
    with sparklog.open(path) as log:
        assert log.offsets("t") == {0: (0, 3)}
        assert values(log) == [b"first", b"second", b"third"]
        with sparklog.open(path, "rw") as writer:
            writer.append("t", row("fourth"))
        assert log.offsets("t") == {0: (0, 4)}


@pytest.mark.parametrize("is_closed", [False, True])
def test_without_the_topics_file_readers_ask_the_ledger(
    is_closed: bool, killed: tuple[Path, dict[str, bytes]]
) -> None:
    path, _ = killed
    if is_closed:
        sparklog.open(path, "rw").close()
    (path / "sparklog.topics").unlink()
    with sparklog.open(path) as log:
        (topic,) = (t for name, t in log.topics().items() if name not in INTERNAL)
        assert topic.config.max_message_bytes == 12345
        assert values(log) == [b"first", b"second", b"third"]
