"""Tests of what only some versions of Spark have."""

import ast
import json
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQuery

from sparklog.spark_versions import PYSPARK


def since(version: tuple[int, int], what: str) -> pytest.MarkDecorator:
    """Skip the test in older versions, which do not have `what`."""
    name = ".".join(map(str, version))
    return pytest.mark.skipif(version > PYSPARK, reason=f"{what}: since Spark {name}")


PUSHDOWN = since((4, 1), "filters for Python data sources")


def end_offset(query: StreamingQuery) -> Any:
    """The end offset of the query's first source, which is no JSON before Spark 4.2."""
    assert query.lastProgress is not None
    text = query.lastProgress["sources"][0]["endOffset"]
    return json.loads(text) if PYSPARK >= (4, 2) else ast.literal_eval(text)
