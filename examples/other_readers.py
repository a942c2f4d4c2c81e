"""One log, other readers: DuckDB, Polars and pandas on `log.read`, by way of Arrow.

    python examples/other_readers.py

`log.read` gives a pyarrow.RecordBatchReader. DuckDB and Polars take its batches as they are in
memory; pandas keeps them as Arrow columns. Nothing is written to disk in between.
"""

import shutil
import tempfile
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

import sparklog

CITIES = ("Oslo", "Lima", "Kyoto")
ROWS = 30_000


def fill(log: sparklog.Log) -> None:
    """Measurements, key a city, value a number as text."""
    log.create_topic("weather", partitions=3)
    numbers = range(ROWS)
    log.append(
        "weather",
        pa.table(
            {
                "key": [CITIES[n % 3] for n in numbers],
                "value": [str(n % 40 - 10 * (n % 3)) for n in numbers],
                "timestamp": pa.array(
                    [1_700_000_000_000 + n * 1000 for n in numbers], pa.timestamp("ms", tz="UTC")
                ),
            }
        ),
    )


def by_duckdb(log: sparklog.Log) -> dict[str, float]:
    """SQL over the stream: batch by batch, so the topic may be larger than memory."""
    weather = log.read("weather", columns=["key", "value"])
    found = duckdb.sql(
        "SELECT decode(key) AS city, avg(CAST(decode(value) AS INTEGER)) AS mean "
        "FROM weather GROUP BY ALL"
    ).fetchall()
    assert weather.read_all().num_rows == 0  # the query took it all
    return dict(found)


def by_polars(log: sparklog.Log) -> dict[str, float]:
    """A data frame on Arrow's own buffers."""
    frame = pl.from_arrow(log.read("weather", columns=["key", "value"]).read_all())
    assert isinstance(frame, pl.DataFrame)
    means = frame.group_by(pl.col("key").cast(pl.String)).agg(
        pl.col("value").cast(pl.String).cast(pl.Int32).mean()
    )
    return dict(means.iter_rows())


def by_pandas(log: sparklog.Log) -> dict[str, float]:
    """A data frame whose columns stay Arrow's: no Python object a record."""
    table = log.read("weather", columns=["key", "value"]).read_all()
    text = table.cast(pa.schema([("key", pa.string()), ("value", pa.string())]))
    frame: Any = text.to_pandas(types_mapper=pd.ArrowDtype)
    means = frame.assign(value=frame["value"].astype("int32[pyarrow]")).groupby("key")["value"]
    return {str(city): float(mean) for city, mean in means.mean().items()}


def main() -> None:
    path = tempfile.mkdtemp(prefix="sparklog-readers-")
    try:
        with sparklog.open(path, "rw") as log:
            fill(log)
        with sparklog.open(path) as log:
            answers = {read.__name__: read(log) for read in (by_duckdb, by_polars, by_pandas)}
    finally:
        shutil.rmtree(path)
    for name, means in answers.items():
        said = ", ".join(f"{city} {means[city]:.2f}" for city in CITIES)
        print(f"{name.removeprefix('by_'):>7}: {said}")
    first = {city: round(mean, 6) for city, mean in answers["by_duckdb"].items()}
    assert all({c: round(m, 6) for c, m in means.items()} == first for means in answers.values())


if __name__ == "__main__":
    main()
