"""Decodes the changes of a batch in a partition of a store to the columns of changes.py."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.checkpoint.change_feed.change_files import ChangeFile
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.spark_files.state_changelog import (
    DELETE,
    DELETE_RANGE,
    MERGE,
    PUT,
    Entries,
    read_entries,
)
from sparklog.checkpoint.spark_files.state_files import plain, read_families
from sparklog.checkpoint.spark_files.state_rows import read_keys, read_values, split_lists
from sparklog.checkpoint.spark_files.state_schema import ColumnFamily, StateStoreSchema
from sparklog.checkpoint.spark_files.unsafe_row import Ints, Spans, load, struct
from sparklog.errors import DataCorruptionError, InvalidRequestError

_ROWS: Final = 1 << 16
_BYTES: Final = 64 << 20
_CHECKSUM: Final = 4  # bytes
_NAMES: Final = {PUT: "put", DELETE: "delete", MERGE: "merge", DELETE_RANGE: "delete_range"}


def changes_schema(schema: StateStoreSchema, column_family: str | None = None) -> pa.Schema:
    """Return the columns of `changes`.

    Raises:
        InvalidRequestError: The store has no such column family.
    """
    chosen = _chosen(schema, column_family)
    if not schema.has_families or column_family is not None:
        key, value = chosen[0].key, chosen[0].value
    else:
        key = pa.struct([(family.name, family.key) for family in chosen])
        value = pa.struct([(family.name, family.value) for family in chosen])
    fields = [("batch", pa.int64()), ("partition", pa.int32())]
    if schema.has_families and column_family is None:
        fields.append(("column_family", pa.string()))
    fields += [("change", pa.string()), ("key", key), ("value", value)]
    if schema.has_families:
        fields.append(("range_end", key))
    return pa.schema(fields)


def _chosen(schema: StateStoreSchema, column_family: str | None) -> list[ColumnFamily]:
    if column_family is None:
        return list(schema.families.values())
    if not schema.has_families or column_family not in schema.families:
        there = ", ".join(sorted(schema.families)) if schema.has_families else "none"
        raise InvalidRequestError(
            f"operator {schema.operator}, store {schema.store} has no column family "
            f"{column_family}; its column families are: {there}"
        )
    return [schema.families[column_family]]


class ChangeReader:
    """Decodes change files of a store. Caches the ids of column families."""

    def __init__(
        self, checkpoint: Checkpoint, schema: StateStoreSchema, column_family: str | None = None
    ) -> None:
        """Create a reader.

        Raises:
            InvalidRequestError: The store has no such column family.
        """
        self._checkpoint, self._schema, self._family = checkpoint, schema, column_family
        self._families = _chosen(schema, column_family)
        self._names: dict[int, dict[int, str]] = {}  # partition -> id -> name
        self.arrow_schema = changes_schema(schema, column_family)

    def read(self, file: ChangeFile) -> Iterator[pa.RecordBatch]:
        """Yield the changes in a file, 64Ki rows at a time.

        Raises:
            FileNotFoundError: Spark removed the file.
            DataCorruptionError: The file is damaged.
        """
        data = self._checkpoint.read(file.path)
        where = self._checkpoint.locate(file.path)[0]
        entries = read_entries(plain(data, where), where)
        names = self._names_of(file, entries, where) if entries.has_families else {}
        for rows in _slices(entries):
            batch = self._decode(file, entries, rows, names, where)
            if batch.num_rows:
                yield batch

    def _names_of(self, file: ChangeFile, entries: Entries, where: str) -> dict[int, str]:
        """Return {id: name} of the column families in a file."""
        if (entries.key_size < 2).any():
            raise DataCorruptionError("a key has no column family", path=where)
        ids = set(np.unique(_ids(entries, slice(None))).tolist())
        known = self._names.setdefault(file.partition, {})
        for path in file.snapshots:
            if ids <= known.keys():
                break
            try:
                snapshot = self._checkpoint.read(path)
            except FileNotFoundError:
                continue
            known.update(read_families(snapshot, self._checkpoint.locate(path)[0]))
        if not ids <= known.keys():
            raise DataCorruptionError(
                f"no snapshot names the column families {sorted(ids - known.keys())} of this file",
                path=where,
            )
        new = {known[n] for n in ids} - self._schema.families.keys()
        if new:
            raise InvalidRequestError(
                f"{where} has column families that the schema of the state did not have when this "
                f"read began: {', '.join(sorted(new))}; start the read again",
                path=where,
            )
        return known

    def _decode(
        self, file: ChangeFile, entries: Entries, rows: slice, names: dict[int, str], path: str
    ) -> pa.RecordBatch:
        kinds, data = entries.kinds[rows], entries.data
        nothing = np.zeros(len(kinds), np.bool_)
        keys = Spans(entries.key_at[rows], entries.key_size[rows], nothing)
        rest = Spans(entries.value_at[rows], entries.value_size[rows], nothing)
        values = rest.only((kinds == PUT) | (kinds == MERGE))
        ids = _ids(entries, rows) if names else np.zeros(len(kinds), np.int64)
        if self._family is not None:  # drop other families before decoding
            kept = np.isin(ids, [n for n, name in names.items() if name == self._family])
            values = values.only(kept)
        else:
            kept = ~nothing
        if file.is_rocksdb and pa.types.is_struct(self._families[0].value):
            index, values = split_lists(data, values, path)
            if len(index) > len(kinds):
                repeated = np.append(False, index[1:] == index[:-1])
                kinds = np.where(repeated, MERGE, kinds[index])
                keys, rest = _take(keys, index), _take(rest, index)
                ids, kept = ids[index], kept[index]
        ends = rest.only(kinds == DELETE_RANGE)
        if names:
            keys, ends = keys.skip(2), ends.skip(2)
        if file.row_checksums and not file.is_rocksdb:
            values, keys = values.skip(_CHECKSUM), keys.skip(_CHECKSUM * (kinds == DELETE))
        columns = {
            "batch": np.full(len(kinds), file.batch, np.int64),
            "partition": np.full(len(kinds), file.partition, np.int32),
            "change": _texts(kinds, _NAMES),
            "column_family": _texts(ids, names) if names else None,
        }
        keep: tuple[Any, ...] = (data, ids, names, path, file.is_rocksdb)
        columns["key"] = self._structs("key", keys, *keep)
        columns["value"] = self._structs("value", values, *keep)
        if self._schema.has_families:
            columns["range_end"] = self._structs("key", ends, *keep)
        batch = pa.RecordBatch.from_arrays(
            [pa.array(columns[f.name]) for f in self.arrow_schema], schema=self.arrow_schema
        )
        return batch if kept.all() else batch.filter(pa.array(kept))

    def _structs(
        self,
        column: str,
        spans: Spans,
        data: NDArray[np.uint8],
        ids: Ints,
        names: dict[int, str],
        path: str,
        is_rocksdb: bool,
    ) -> pa.Array:
        read = read_keys if column == "key" else read_values
        if not names:
            return read(self._families[0], data, spans, path, rocksdb=is_rocksdb)
        found = []
        for family in self._families:
            own = np.isin(ids, [n for n, name in names.items() if name == family.name])
            mine = spans.only(own)
            kind = family.key if column == "key" else family.value
            found.append(
                pa.nulls(len(ids), kind)
                if mine.null.all()
                else read(family, data, mine, path, rocksdb=is_rocksdb)
            )
        if self._family is not None:
            return found[0]
        return struct(self.arrow_schema.field(column).type, found, spans.null)


def _ids(entries: Entries, rows: slice) -> Ints:
    at = entries.key_at[rows]
    return load(entries.data, at, np.zeros(len(at), np.bool_), "<i2").astype(np.int64)


def _take(spans: Spans, index: Ints) -> Spans:
    return Spans(spans.at[index], spans.size[index], spans.null[index])


def _texts(numbers: Ints, names: dict[int, str]) -> pa.Array:
    known = sorted(names)
    return pa.array([names[n] for n in known]).take(pa.array(np.searchsorted(known, numbers)))


def _slices(entries: Entries) -> Iterator[slice]:
    """Yield slices of a file's rows that limit how much is decoded at once."""
    ends = np.cumsum(entries.key_size + np.maximum(entries.value_size, 0))
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + _BYTES, side="right"))
        stop = max(start + 1, min(start + _ROWS, fits))
        yield slice(start, stop)
        start = stop
