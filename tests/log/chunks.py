"""The records of staged chunks, for tests."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.common import TopicPartition
from sparklog.format.decoder import Decoder
from sparklog.format.scan import scan
from sparklog.storage.commits import Chunk


def data_of(chunk: Chunk) -> bytes:
    """A chunk's bytes, from memory or from its file; checks that it is as large as it says."""
    if chunk.data is not None:
        data = bytes(chunk.data)
    else:
        assert chunk.path is not None
        data = Path(chunk.path).read_bytes()
    assert len(data) == chunk.size_bytes
    return data


def records_of(chunks: Iterable[Chunk]) -> dict[TopicPartition, list[dict[str, Any]]]:
    """The records of each partition in their order, offsets as if the chunks were appended.

    Timestamps are in microseconds. Checks that each batch is sound, that a chunk's offsets count
    from 0, and what it says of itself.
    """
    found: dict[TopicPartition, list[dict[str, Any]]] = {}
    for chunk in chunks:
        data, decoder, count = data_of(chunk), Decoder(), 0
        batches = scan(data, path="chunk")
        assert batches.error is None
        assert batches.end == len(data)
        for header in batches.table:
            assert header["base_offset"] == count
            count += int(header["count"])
        assert decoder.add_many(data, batches.table, path="chunk") == len(batches.table)
        rows = decoder.finish()
        assert rows.num_rows == chunk.records == count
        stamps = rows.column("timestamp").cast(pa.int64())
        rows = rows.set_column(3, "timestamp", stamps)
        low, high = (stamp // 1000 for stamp in pc.min_max(stamps).as_py().values())
        assert (low, max(high, -1)) == (chunk.min_timestamp, chunk.max_timestamp)
        found.setdefault(chunk.key, []).extend(rows.to_pylist())
    for rows in found.values():
        for offset, row in enumerate(rows):
            row["offset"] = offset
    return found
