"""Whose a log dir is, and that it is nobody's but sparklog's until it is handed over."""

import pyarrow as pa
import pytest

import sparklog
from sparklog.fs import LOCAL
from sparklog.logdir.meta_properties import (
    give_to_brokers,
    is_kept_from_brokers,
    keep_from_brokers,
    read_properties,
)

BROKERS = {"cluster.id": "MkU3OEVBNTcwNTJENDM2Qg", "node.id": "7", "directory.id": "x"}


def _text(path):
    return (path / "meta.properties").read_text()


def _write(path, text):
    (path / "meta.properties").write_text(text)


def test_every_log_dir_is_kept_from_the_first_open_on(tmp_path):
    dirs = [tmp_path / "a", tmp_path / "b"]
    with sparklog.open(f"{dirs[0]},{dirs[1]}", "rw") as log:
        assert all(is_kept_from_brokers(LOCAL, str(path)) for path in dirs)
        log.create_topic("t")
        log.append("t", pa.table({"value": [b"v"]}))
    assert all(is_kept_from_brokers(LOCAL, str(path)) for path in dirs)
    assert "version=sparklog keeps this log" in _text(dirs[1])


def test_reading_makes_nothing(tmp_path):
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
    (tmp_path / "log" / "meta.properties").unlink()
    with sparklog.open(tmp_path / "log") as log:
        assert log.topics().keys() == {"t"}
    assert not (tmp_path / "log" / "meta.properties").exists()


@pytest.mark.parametrize("version", ["1", "0", ""])
def test_what_a_broker_said_stays(tmp_path, version):
    lines = "#\n#Mon Nov 23 03:14:16 UTC 2026\n" + "".join(f"{k}={v}\n" for k, v in BROKERS.items())
    _write(tmp_path, lines + (f"version={version}\n" if version else ""))
    assert not is_kept_from_brokers(LOCAL, str(tmp_path))
    keep_from_brokers(LOCAL, [str(tmp_path)])
    assert is_kept_from_brokers(LOCAL, str(tmp_path))
    assert read_properties(LOCAL, str(tmp_path)) == BROKERS
    kept = _text(tmp_path)
    keep_from_brokers(LOCAL, [str(tmp_path)])
    assert _text(tmp_path) == kept
    give_to_brokers(LOCAL, str(tmp_path), BROKERS)
    assert not is_kept_from_brokers(LOCAL, str(tmp_path))
    assert sorted(_text(tmp_path).split()) == sorted(
        [*(f"{k}={v}" for k, v in BROKERS.items()), "version=1"]
    )


@pytest.mark.parametrize("text", ["", "\n\n", "= =\n", "\xff\xfe=\n", "node.id\n", "a = b\r\n"])
def test_whatever_lies_there_is_replaced(tmp_path, text):
    (tmp_path / "meta.properties").write_bytes(text.encode("latin-1"))
    keep_from_brokers(LOCAL, [str(tmp_path)])
    assert is_kept_from_brokers(LOCAL, str(tmp_path))


def test_spaces_and_line_ends_are_no_part_of_a_value(tmp_path):
    (tmp_path / "meta.properties").write_bytes(b"node.id = 7\r\n! a comment\r\ncluster.id=x=y\r\n")
    assert read_properties(LOCAL, str(tmp_path)) == {"node.id": "7", "cluster.id": "x=y"}
