"""The jar by `--packages`, from the repository that `make release` writes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.jvm import packaged_jar
from sparklog.jvm.compiler import Spark
from tests.built_jars import clone, with_jars
from tests.jars import or_skip
from tests.paths import ROOT
from tests.spark.conftest import environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]
APPLICATION = """
import sys
from pyspark.sql import SparkSession
import sparklog
spark = SparkSession.builder.getOrCreate()
sparklog.register(spark)
rows = spark.range(100).selectExpr("cast(id as string) as value")
path = sys.argv[1]
rows.write.format("sparklog").mode("append").options(path=path, topic="t").save()
print("rows", spark.read.format("sparklog").options(path=path, subscribe="t").load().count())
print(sparklog.doctor(spark))
"""


def test_the_jar_by_packages(tmp_path: Path) -> None:
    version = Spark.installed().version
    name = packaged_jar.jar_name(version)
    with or_skip("jars"):
        tree = with_jars(clone(tmp_path / "tree"))
    script = [sys.executable, tree / "scripts" / "jars.py", "--maven", tmp_path / "maven"]
    made = subprocess.run(script, capture_output=True, text=True, timeout=1200)
    assert made.returncode == 0, made.stderr
    series = name.removeprefix("sparklog-jvm-").removesuffix(".jar")
    (coordinates,) = [line for line in made.stdout.split() if f"spark-{series}_" in line]
    application = tmp_path / "application.py"
    application.write_text(APPLICATION)
    submit = shutil.which("spark-submit", path=str(Path(sys.executable).parent))
    command = [
        submit or "spark-submit", "--master", "local[2]", "--packages", coordinates,
        "--repositories", (tmp_path / "maven").as_uri(),
        "--conf", f"spark.jars.ivy={tmp_path / 'ivy'}", "--conf", "spark.ui.enabled=false",
        application, tmp_path / "log",
    ]  # fmt: skip
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=300,
        env={**environment(), "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "rows 100" in done.stdout
    assert "the JVM reads and writes the logs" in done.stdout
    assert os.path.isdir(tmp_path / "ivy")
