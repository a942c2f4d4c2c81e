"""An application without sparklog's jar that makes tables of Spark's catalog.

python catalog_tables.py DIRECTORY: prints, as JSON, what each use of such a table answers.
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

import sparklog


def main(directory: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.chdir(directory)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    sparklog.register(spark)
    rows, given = spark.sql("SELECT 'a' value"), {"path": f"{directory}/log", "topic": "t"}
    rows.write.format("sparklog").mode("append").options(**given).saveAsTable("made")
    uses: dict[str, Any] = {
        "select": lambda: spark.sql("SELECT * FROM made").collect(),
        "insert": lambda: spark.sql("INSERT INTO made SELECT 'a' value"),
        "append": lambda: rows.writeTo("made").append(),
        "save": lambda: rows.write.format("sparklog").mode("append").saveAsTable("made"),
        "stream": lambda: (
            spark.readStream.table("made").writeStream.format("noop")
            .option("checkpointLocation", f"{directory}/checkpoint").start().awaitTermination()
        ),
    }  # fmt: skip
    told = {}
    for name, use in uses.items():
        try:
            told[name] = repr(use())
        except Exception as error:
            told[name] = str(error)
    spark.sql("DROP TABLE made")
    # As the sentence says: the log is as it was, a view reads it, save() writes it.
    sql = f"OPTIONS (path '{directory}/log', subscribe 't')"
    spark.sql(f"CREATE TEMPORARY VIEW made USING sparklog {sql}")
    rows.write.format("sparklog").mode("append").options(**given).save()
    print(json.dumps([told, spark.sql("SELECT count(*) FROM made").collect()[0][0]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
