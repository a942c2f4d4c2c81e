"""The settings that a session gets. Where the jar comes from: tests/jvm/test_jar.py."""

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import sparklog
from sparklog.cli.doctor import doctor
from sparklog.errors import InvalidRequestError
from sparklog.jvm.jar import CACHE_VARIABLE, JAR_VARIABLE, jar, write_jar
from sparklog.jvm.jar_file import JarVersions, write
from sparklog.session.setup import MANAGER, MANAGER_KEY


def test_settings_of_a_session_to_be_built() -> None:
    given = {"spark.jars": "/a.jar,/b.jar", "spark.python.unix.domain.socket.enabled": "false"}
    conf = sparklog.spark_conf(given)
    assert conf[MANAGER_KEY] == MANAGER
    assert conf["spark.jars"].split(",") == ["/a.jar", "/b.jar", jar()]
    assert conf["spark.python.unix.domain.socket.enabled"] == "false"
    assert conf[DAEMON] == "sparklog.session.daemon"


def test_settings_that_leave_checkpoints_to_spark() -> None:
    conf = sparklog.spark_conf(checkpoints=False)
    assert conf["spark.jars"] == jar()
    assert not [name for name in conf if "checkpoint" in name.lower()]
    told = CliRunner().invoke(doctor, ["--spark-conf", "--no-checkpoints"])
    assert jar() in told.output
    assert MANAGER not in told.output


def test_a_jar_that_is_given_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without a compiler and without a place to keep what it makes."""
    own = write_jar(str(tmp_path / "any.jar"))
    monkeypatch.setenv(CACHE_VARIABLE, "/dev/null/cache")
    with pytest.raises(InvalidRequestError, match=CACHE_VARIABLE):
        sparklog.spark_conf()
    assert sparklog.spark_conf({"spark.jars": f"/a.jar,{own}"})["spark.jars"] == f"/a.jar,{own}"
    far = "/a.jar,s3://b/sparklog-jvm-4.3.0-0123456789abcdef.jar"
    assert sparklog.spark_conf({"spark.jars": far})["spark.jars"] == far
    monkeypatch.setenv(JAR_VARIABLE, own)
    assert sparklog.spark_conf({"spark.jars": "/a.jar"})["spark.jars"] == f"/a.jar,{own}"
    (tmp_path / "classes").mkdir()
    write(tmp_path / "old.jar", tmp_path / "classes", JarVersions("3.5.1"))
    with pytest.raises(InvalidRequestError, match=r"old\.jar can't be used: .* Spark 3\.5\.1"):
        sparklog.spark_conf({"spark.jars": str(tmp_path / "old.jar")})


def test_the_jar_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for form in (["--json"], ["--args"], []):
        said = CliRunner().invoke(doctor, ["--spark-conf", *form, "--jar", "sparklog.jar"])
        assert said.exit_code == 0
        assert (tmp_path / "sparklog.jar").read_bytes() == Path(jar()).read_bytes()
        words = json.loads(said.output).values() if form == ["--json"] else said.output.split()
        assert any(w.endswith(str(tmp_path / "sparklog.jar")) for w in words)
        assert jar() not in said.output
    (tmp_path / "app.jar").write_bytes(b"mine")
    said = CliRunner().invoke(doctor, ["--spark-conf", "--jar", "app.jar"])
    assert said.exit_code == 2
    assert "remove it, or name another file" in said.output
    assert (tmp_path / "app.jar").read_bytes() == b"mine"
    (tmp_path / "app.jar").unlink()
    assert CliRunner().invoke(doctor, ["--spark-conf", "--jar", "app.jar"]).exit_code == 0


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
    """`spark-submit $(... --args) --py-files ...` must give workers that start."""
    for args, expected in ((["--args"], False), (["--args", "--daemon"], True), ([], False)):
        said = CliRunner().invoke(doctor, ["--spark-conf", *args])
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

    sparklog.enable(session, checkpoints=False)
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
