"""State of flatMapGroupsWithState, which only Scala and Java have."""

import subprocess
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.checkpoint import erase, rewrite
from tests import jars
from tests.state.operators import OTHERS, Output, run, session, source

pytestmark = [pytest.mark.spark, pytest.mark.deep]

SCALA = Path(__file__).parent / "scala" / "FlatMapGroups.scala"
AT, LAST = 3, 8


@pytest.fixture
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar of the query."""
    with jars.or_skip("the Scala compiler"):
        java, jar_tool = jars.java(), jars.java("jar")
    directory = tmp_path_factory.mktemp("classes")
    spark_jars = f"{Path(pyspark.__file__).parent / 'jars'}/*"
    compiler = [java, "-cp", spark_jars, "scala.tools.nsc.Main", "-usejavacp", "-nowarn"]
    subprocess.run([*compiler, "-d", directory, SCALA], check=True, timeout=300)
    made = directory / "query.jar"
    subprocess.run([jar_tool, "--create", "--file", made, "-C", directory, "sparklog"], check=True)
    return made


def test_flat_map_groups_with_state(
    spark: SparkSession, classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys, values and timeouts continue in another provider, in other partitions."""
    jvm = spark._jvm
    assert jvm is not None
    spark.sparkContext._jsc.addJar(str(classes))
    urls = spark.sparkContext._gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.net.URI(classes.as_uri()).toURL()
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loaded = jvm.java.net.URLClassLoader(urls, parent).loadClass("sparklog.probe.FlatMapGroups")

    def counted(own: SparkSession) -> tuple[DataFrame, str]:
        rows = source(own).where("k = int(value / 20) % 10")  # a key a batch: it ends
        (method,) = [each for each in loaded.getMethods() if each.getName() == "counted"]
        arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = rows._jdf
        return DataFrame(method.invoke(None, arguments), own), "append"

    monkeypatch.setitem(OTHERS, "counted", counted)
    expected: Output = {}
    path = tmp_path / "ckpt"
    run(session(spark, "hdfs", None), "counted", path, expected, LAST)
    assert any(row[3] for rows in expected.values() for row in rows)
    report = rewrite(path, tmp_path / "new", to=AT, provider="rocksdb", partitions=3, spark=spark)
    (each,) = report.operators
    assert len(each.rows_after) == 3
    assert sum(each.rows_before) == sum(each.rows_after) > 0
    run(session(spark, "rocksdb", None), "counted", tmp_path / "new", expected, LAST)

    def more(rows: DataFrame) -> DataFrame:
        state = F.col("value.groupState")
        changed = state.withField("_1", state["_1"] + 100)
        return rows.withColumn("value", F.col("value").withField("groupState", changed))

    rewrite(path, tmp_path / "more", to=AT, with_=more, spark=spark)
    found: Output = {}
    run(session(spark, "hdfs", None), "counted", tmp_path / "more", found, AT + 1)
    begun = f"key-{AT + 1}"  # the only key that has no state yet
    assert found[AT + 1] == [
        (key, count + 100 * (key != begun), total, ended)
        for key, count, total, ended in expected[AT + 1]
    ]
    assert len(found[AT + 1]) > 1
    done = erase(path, tmp_path / "erased", "key.value = 'key-3'", to=AT, spark=spark)
    assert done.rows == {"operator 0": (1, sum(each.rows_before) - 1)}
