"""Hypothesis strategies of a log's inputs: tables for `append`, topics, configs.

    @given(tables(partitions=4), topic_configs())
    def test_mine(data, config): ...

    blobs, headers, timestamps, records     values of a column, and rows of them
    tables          tables for `Log.append`
    topic_names     names of up to 249 characters
    topic_configs   valid topic configs for `create_topic`

Needs hypothesis (`pip install 'sparklog[testing]'`). Sizes are small, because shapes matter most:
nulls, empty values, values longer than a one-byte varint can count, extreme times.
"""

import string
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from sparklog.config import KEYS, TopicConfig
from sparklog.configdef import Key
from sparklog.errors import InvalidRequestError
from sparklog.format.columns import HEADERS_TYPE
from sparklog.format.names import RESERVED

NOW_MS: Final = 1_700_000_000_000
"""The time of a `ManualClock` that was not turned yet."""

Header: TypeAlias = dict[str, str | bytes | None]
Record: TypeAlias = tuple[int | None, bytes | None, bytes | None, list[Header] | None]
"""(timestamp in ms or None, key, value, headers)."""

blobs: Final[st.SearchStrategy[bytes | None]] = st.one_of(
    st.none(), st.binary(max_size=40), st.integers(0, 300).map(lambda n: b"x" * n)
)
"""A key or a value: null, empty, any bytes, or so many that their length takes two bytes."""

headers: Final[st.SearchStrategy[list[Header] | None]] = st.one_of(
    st.none(),
    st.lists(st.fixed_dictionaries({"key": st.text(max_size=5), "value": blobs}), max_size=4),
)
"""Headers of a record: null, none, or some, their keys not always different."""


def timestamps(
    first_ms: int = 0, last_ms: int = NOW_MS, *, null: bool = True
) -> st.SearchStrategy[int | None]:
    """Return a strategy for timestamps (ms since the epoch), many close to `last_ms`.

    A topic rejects timestamps of more than message.timestamp.after.max.ms (an hour) after the
    clock.

    Args:
        first_ms: The smallest timestamp.
        last_ms: The largest timestamp.
        null: Whether null is drawn as well; it stands for the time of the append.

    Examples:
        >>> from hypothesis import given
        >>> from sparklog.testing import timestamps
        >>> @given(timestamps(0, 1_000, null=False))
        ... def test_times(time_ms):
        ...     assert 0 <= time_ms <= 1_000
        >>> test_times()
    """
    near = st.integers(max(first_ms, last_ms - 10**6), last_ms)
    times = st.one_of(st.integers(first_ms, last_ms), near)
    return st.one_of(st.none(), times) if null else times


def records(
    times: st.SearchStrategy[int | None] | None = None,
) -> st.SearchStrategy[Record]:
    """Return a strategy for rows: (timestamp in ms or None, key, value, headers).

    Args:
        times: The strategy of the timestamps; by default `timestamps()`.

    Examples:
        >>> from hypothesis import given
        >>> from sparklog.testing import records
        >>> @given(records())
        ... def test_rows(row):
        ...     time_ms, key, value, headers = row
        >>> test_rows()
    """
    return st.tuples(timestamps() if times is None else times, blobs, blobs, headers)


def to_table(rows: Sequence[Sequence[Any]], *, with_headers: bool = True) -> pa.Table:
    """Return a table for `Log.append` from rows of `records`.

    Args:
        rows: The rows.
        with_headers: Whether the table has the column headers.

    Examples:
        >>> from sparklog.testing import to_table
        >>> to_table([(1_000, b"N1", b"late", [])], with_headers=False).column_names
        ['key', 'value', 'timestamp']
    """
    columns = {
        "key": pa.array([row[1] for row in rows], pa.binary()),
        "value": pa.array([row[2] for row in rows], pa.binary()),
        "timestamp": pa.array([row[0] for row in rows], pa.timestamp("ms")),
    }
    if with_headers:
        made = [row[3] if len(row) > 3 else None for row in rows]
        columns["headers"] = pa.array(made, HEADERS_TYPE)
    return pa.table(columns)


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    rows_min: int = 1,
    rows_max: int = 60,
    partitions: int | None = None,
    times: st.SearchStrategy[int | None] | None = None,
) -> pa.Table:
    """Draw a table for `Log.append`: value, and any of key, headers, timestamp.

    Keys and values are binary, or text in any of Arrow's types.

    Args:
        draw: Passed by Hypothesis.
        rows_min: The smallest number of rows.
        rows_max: The largest number of rows.
        partitions: The number of partitions; without it there is no column `partition`, so that
            keys choose the partition.
        times: The strategy of the column timestamp; by default `timestamps()`, for a clock at
            2023-11 or later.

    Examples:
        >>> from hypothesis import given, settings
        >>> from sparklog.testing import tables
        >>> @settings(max_examples=3)
        ... @given(tables(rows_max=5))
        ... def test_append(rows):
        ...     ends = log.append("flights", rows)
        >>> test_append()
    """
    rows = draw(st.lists(records(times), min_size=rows_min, max_size=rows_max))
    optional = ("key", "headers", "timestamp")
    kept = draw(st.lists(st.sampled_from(optional), unique=True, max_size=len(optional)))
    table = to_table(rows).select(["value", *kept])
    kind = draw(st.sampled_from([pa.binary(), pa.large_binary(), pa.string()]))
    for name in {"key", "value"} & set(table.column_names):
        column = table[name]
        if kind == pa.string():
            texts = [None if v is None else v.decode("latin-1") for v in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, kind)])
        table = table.set_column(table.column_names.index(name), name, column.cast(kind))
    if partitions is not None:
        number = st.integers(0, partitions - 1)
        numbers = draw(st.lists(number, min_size=len(rows), max_size=len(rows)))
        table = table.append_column("partition", pa.array(numbers, pa.int32()))
    return table


def _may_be_made(name: str) -> bool:
    """Return False for reserved names, which hypothesis also draws from the code under test."""
    return name not in {".", "..", *RESERVED} and not name.startswith("__sparklog")


topic_names: Final[st.SearchStrategy[str]] = st.text(
    string.ascii_letters + string.digits + "._-", min_size=1, max_size=249
).filter(_may_be_made)
"""Names that Kafka takes, but for those of internal topics. Source: Topic.validate."""


@st.composite
def topic_configs(draw: st.DrawFn, *, keys_max: int = 4) -> dict[str, str | int | float | bool]:
    """Draw configs of a topic under Kafka's names. All values are in range and valid together.

    Args:
        draw: Passed by Hypothesis.
        keys_max: The largest number of configs.

    Examples:
        >>> from hypothesis import given, settings
        >>> from sparklog.testing import topic_configs
        >>> @settings(max_examples=3)
        ... @given(topic_configs())
        ... def test_configs(config):
        ...     info = log.alter_topic("flights", config=config)
        >>> test_configs()
    """
    names = draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=keys_max, unique=True))
    found: dict[str, Any] = {}
    for name in names:
        found[name] = draw(_values(KEYS[name]))
        try:
            TopicConfig.parse(found)
        except InvalidRequestError:  # valid only with other keys, or never
            del found[name]
    return found


def _values(key: Key) -> st.SearchStrategy[str | int | float | bool]:
    """Return valid values of a key, including the limits of the key's range."""
    if key.kind is bool:
        return st.booleans()
    if key.kind is tuple:
        lists = st.lists(st.sampled_from(key.choices), min_size=1, unique=True)
        return lists.map(",".join)
    if key.choices:
        return st.sampled_from(key.choices)
    assert key.low is not None and key.high is not None
    if key.kind is float:
        return st.floats(key.low, key.high)
    low, high = int(key.low), int(key.high)
    inner = st.one_of(st.just(low), st.just(high), st.integers(low, high))
    return inner if key.extra is None else st.one_of(st.just(key.extra), inner)
