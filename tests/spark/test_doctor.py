"""`sparklog doctor` and `sparklog.doctor`: a sound session, and each thing that can be wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.cli.app import run
from sparklog.jvm.gateway import JVM_CONF
from sparklog.session import doctor as doctors
from sparklog.session.doctor import DoctorReport, Examined
from sparklog.session.setup import MANAGER, MANAGER_KEY
from tests.spark.conftest import environment
from tests.spark.test_error_texts import bare_python

pytestmark = [pytest.mark.spark, pytest.mark.one_path]


def line(report: DoctorReport, subject: str) -> Examined:
    (found,) = [each for each in report.lines if each.subject == subject]
    return found


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session of the application with conf of its own."""
    return spark.newSession()


def test_a_sound_session(session: SparkSession, tmp_path: Path) -> None:
    session.conf.set(MANAGER_KEY, MANAGER)
    report = sparklog.doctor(session, str(tmp_path / "new" / "checkpoint"))
    assert report.ok, str(report)
    jvm: Any = session.sparkContext._jvm
    hadoop = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    for part in (f"Spark {session.version}", "Scala 2.13.", "Java ", f"Hadoop {hadoop}"):
        assert part in line(report, "Spark").found
    assert f"sparklog {sparklog.__version__}" in line(report, "driver").found
    assert line(report, "jar").found.endswith(f".jar, of sparklog {sparklog.__version__}")
    assert line(report, "data path").found.startswith("the JVM")
    assert line(report, "checkpoints").found.endswith("new/checkpoint: log-backed")
    assert f"sparklog {sparklog.__version__}, compiled kernel" in line(report, "workers").found
    assert "->" not in str(report)


def test_the_data_path_that_the_user_chose(session: SparkSession) -> None:
    session.conf.set(JVM_CONF, "false")
    report = sparklog.doctor(session)
    assert report.ok
    found = line(report, "data path").found
    assert found == f"Python reads and writes the logs: {JVM_CONF} is false"


@pytest.mark.parametrize(
    ("location", "why"),
    [("s3a://bucket/c", "its file system can't be used"), ("nowhere://x/c", "can't be used"),
     ("/tmp/new/c", None)],
)  # fmt: skip
def test_where_a_checkpoint_becomes_a_log(
    session: SparkSession, location: str, why: str | None
) -> None:
    own = line(sparklog.doctor(session, location), "checkpoints")
    assert own.found == f"{location}: files, written by Spark with its own manager"
    assert own.fault == ""
    session.conf.set(MANAGER_KEY, MANAGER)
    found = line(sparklog.doctor(session, location), "checkpoints")
    if why is None:
        assert found == Examined("checkpoints", f"{location}: log-backed")
    else:
        assert why in found.found
        assert "use another checkpointLocation, or set" in found.fault
    session.conf.set(MANAGER_KEY, "com.example.Manager")
    other = line(sparklog.doctor(session, location), "checkpoints").found
    assert "com.example.Manager" in other


def test_workers_without_sparklog(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "elsewhere"
    python.write_text(f'#!/bin/sh\ncd / && exec {bare_python(tmp_path)} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(python))
    report = sparklog.doctor(session)
    assert not report.ok
    found = line(report, "workers")
    assert "sparklog" in found.fault
    assert "set PYSPARK_PYTHON to a Python that has it" in found.fault


def test_a_package_that_spark_needs_is_missing(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy is that package, and not sparklog, which is there."""
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pandas", None)
        found = line(sparklog.doctor(session), "workers")
    assert "Pandas" in found.found
    assert found.fault.startswith("install this package for the Python of the driver")
    assert line(sparklog.doctor(session), "workers").fault == ""


def test_other_faults_of_workers() -> None:
    class Row:
        sparklog, kernel = "0.0.9", "compiled"

    assert "the driver has sparklog" in doctors._worker_fault(Row)
    Row.sparklog, Row.kernel = sparklog.__version__, "interpreted"
    assert "up to 60 times slower" in doctors._worker_fault(Row)
    Row.sparklog, Row.kernel = "", "No module named 'sparklog'"
    assert "it can't import sparklog (No module" in doctors._worker_fault(Row)


@pytest.mark.deep
@pytest.mark.parametrize("jar", [True, False])
def test_the_command(tmp_path: Path, jar: bool) -> None:
    """By itself the command starts a session with the jar."""
    sparklog_command = [sys.executable, "-m", "sparklog.cli", "doctor", "--json"]
    code = (
        "import sparklog; from pyspark.sql import SparkSession as S;"
        "r = sparklog.doctor(S.builder.master('local[2]').getOrCreate()); print(r); print(r.ok)"
    )
    done = subprocess.run(
        [*sparklog_command, str(tmp_path / "c")] if jar else [sys.executable, "-c", code],
        capture_output=True, text=True, env=environment(), timeout=240, cwd=tmp_path,
    )  # fmt: skip
    if jar:
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout)
        assert found["ok"]
        assert [each["subject"] for each in found["lines"]][:5] == [
            "Spark", "driver", "jar", "data path", "checkpoints"
        ]  # fmt: skip
    else:
        assert "! jar" in done.stdout, done.stdout + done.stderr
        assert "-> the session doesn't have sparklog's jar: call sparklog.enable" in done.stdout
        assert done.stdout.split()[-1] == "False"


@pytest.mark.deep
def test_the_command_without_java(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sparklog.cli", "doctor"], capture_output=True, text=True,
        env={**environment(), "JAVA_HOME": str(tmp_path)}, timeout=240,
    )  # fmt: skip
    assert done.returncode == 1
    assert "set JAVA_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_options_of_the_settings_need_spark_conf(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--args"]) == 2
    assert "need --spark-conf" in capsys.readouterr().err


def test_the_earlier_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spark-conf", "--no-checkpoints"]) == 0
    old = capsys.readouterr().out
    assert run(["doctor", "--spark-conf", "--no-checkpoints"]) == 0
    assert capsys.readouterr().out == old
    assert "spark.jars " in old
    assert os.path.isfile(old.rpartition("spark.jars ")[2].strip())
