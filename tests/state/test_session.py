"""The jar, and the settings that a session gets."""

import os
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import sparklog
from sparklog.cli.spark_conf import spark_conf
from sparklog.errors import InvalidRequestError
from sparklog.jvm.jar import CACHE_VARIABLE, jar
from sparklog.state.session import MANAGER, MANAGER_KEY


@pytest.mark.deep  # compiles it anew
def test_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "new" / "cache"))
    first = jar()
    written = os.stat(first).st_mtime_ns
    began = time.monotonic()
    assert jar() == first
    assert time.monotonic() - began < 1
    assert os.stat(first).st_mtime_ns == written
    assert os.listdir(tmp_path / "new" / "cache") == [os.path.basename(first)]


def test_what_it_needs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidRequestError, match="set JAVA_HOME"):
        jar()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(InvalidRequestError, match="no Scala compiler"):
        jar()
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    with pytest.raises(InvalidRequestError, match=CACHE_VARIABLE):
        jar()
    assert os.listdir(tmp_path / "cache") == []


def test_settings_of_a_session_to_be_built() -> None:
    given = {"spark.jars": "/a.jar,/b.jar", "spark.python.unix.domain.socket.enabled": "false"}
    conf = sparklog.spark_conf(given)
    assert conf[MANAGER_KEY] == MANAGER
    assert conf["spark.jars"].split(",") == ["/a.jar", "/b.jar", jar()]
    assert conf["spark.python.unix.domain.socket.enabled"] == "false"
    assert conf[DAEMON] == "sparklog.state.daemon"


DAEMON = "spark.python.daemon.module"


def test_the_daemon_only_where_it_is_known_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --py-files it isn't there when Spark starts it, and no Python worker would start."""
    bare = tmp_path / "python"  # another Python, without sparklog
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    assert DAEMON in sparklog.spark_conf({"spark.master": "local[4]"})
    assert DAEMON not in sparklog.spark_conf({"spark.master": "yarn"})
    assert DAEMON not in sparklog.spark_conf({"spark.pyspark.python": str(bare)})
    assert DAEMON in sparklog.spark_conf({"spark.master": "yarn"}, daemon=True)
    own = {"spark.master": "yarn", DAEMON: "mine"}
    assert sparklog.spark_conf(own)[DAEMON] == "mine"
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(sparklog.__file__)))
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    assert DAEMON not in sparklog.spark_conf()  # a driver has --py-files there, its workers not
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master k8s://x pyspark-shell")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert DAEMON not in sparklog.spark_conf()


def test_on_the_command_line_nobody_knows() -> None:
    """`spark-submit $(sparklog spark-conf --args) --py-files ...` must give workers that start."""
    for args, expected in ((["--args"], False), (["--args", "--daemon"], True), ([], False)):
        said = CliRunner().invoke(spark_conf, args)
        assert said.exit_code == 0
        assert (DAEMON in said.output) == expected


@pytest.mark.spark
def test_a_running_session(spark: SparkSession, tmp_path: Path) -> None:
    """`enable` is for its queries from then on; twice is as good as once."""
    session = spark.newSession()
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()

    def run(checkpoint: Path) -> None:
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    run(tmp_path / "before")
    for _ in range(2):
        sparklog.enable(session)
    run(tmp_path / "after")
    assert not (tmp_path / "before/sparklog").exists()
    with sparklog.open(tmp_path / "after/sparklog") as log:
        assert log.offsets("commits") == {0: (0, 1)}
    assert (tmp_path / "before/commits/0").exists()
    run(tmp_path / "before")  # goes on from what lies there
    with sparklog.open(tmp_path / "before/sparklog") as log:
        assert log.read("commits").read_all()["key"].to_pylist() == [b"1"]


def test_connect_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="spark-conf"):
        sparklog.enable(object())  # type: ignore[arg-type]
