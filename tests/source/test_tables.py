"""Spark's catalog gives a table's options to no Python data source: that is refused."""

import pytest
from pyspark.sql.types import StructType

from sparklog.datasource import SparklogDataSource
from sparklog.errors import InvalidRequestError


def test_a_table_of_the_catalog_is_refused_when_it_is_made() -> None:
    made = {"provider": "sparklog", "path": "file:/data/log", "subscribe": "t", "owner": "me"}
    with pytest.raises(InvalidRequestError, match=r"no table was made.*use CREATE TEMPORARY VIEW"):
        SparklogDataSource(made).schema()


@pytest.mark.parametrize("options", [{}, {"sparklog.jvm.plan": "1"}], ids=["python", "jar"])
def test_a_table_that_was_made_with_columns_is_refused_when_it_is_used(
    options: dict[str, str],
) -> None:
    """Spark asks for no schema then."""
    source = SparklogDataSource(options)
    for call in (
        lambda: source.reader(StructType()),
        lambda: source.writer(StructType(), False),
        lambda: source.streamReader(StructType()).initialOffset(),
        lambda: source.streamWriter(StructType(), False),
    ):
        with pytest.raises(InvalidRequestError, match=r"path is missing.*DROP TABLE.*TEMPORARY"):
            call()


def test_who_asks_for_the_columns_only_gets_them() -> None:
    assert "offset" in SparklogDataSource({}).schema().names
