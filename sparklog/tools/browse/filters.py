"""Which records are meant: by key, or by text in key, value, headers. Whole columns at a time."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRequestError
from sparklog.format.batch import CONTROL

TEXT_MAX: Final = 1000
"""Most characters of a text or key that is looked for."""


class KeyMatch(StrEnum):
    """How a key is compared."""

    EQUALS = "equals"
    PREFIX = "prefix"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """`key`: None means any. `text`: somewhere in key, value, or a header; "" means any.

    `any_case`: upper and lower case are the same in `text` (of UTF-8; a few million records a
    second either way).
    """

    key: bytes | None = None
    key_match: KeyMatch = KeyMatch.EQUALS
    text: str = ""
    any_case: bool = True

    def __post_init__(self) -> None:
        if len(self.text) > TEXT_MAX or len(self.key or b"") > TEXT_MAX:
            raise InvalidRequestError(f"look for {TEXT_MAX} characters at most")

    def __bool__(self) -> bool:
        return self.key is not None or bool(self.text)

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Tell of each row whether it is meant; no marker of a transaction ever is.

        Cost: 0.5-2 GB/s of what is looked at (RE2's search for a literal).
        """
        found: Any = pc.equal(pc.bit_wise_and(rows.column("attributes"), CONTROL), 0)
        if self.key is not None:
            found = pc.and_(found, _no_null(self._key(rows.column("key"))))
        if self.text:
            found = pc.and_(found, self._text(rows))
        return found

    def _key(self, keys: pa.Array) -> Any:
        if self.key_match is KeyMatch.EQUALS:
            return pc.equal(keys, pa.scalar(self.key, keys.type))
        if self.key_match is KeyMatch.PREFIX:
            return pc.starts_with(keys, self.key)
        return pc.match_substring_regex(keys, _literal_bytes(self.key or b""))

    def _text(self, rows: pa.RecordBatch) -> Any:
        found = pc.or_(self._holds(rows.column("key")), self._holds(rows.column("value")))
        headers = rows.column("headers")
        entries = pc.list_flatten(headers)
        if not len(entries):
            return found
        hits = pc.or_(self._holds(entries.field("key")), self._holds(entries.field("value")))
        owners = pc.filter(pc.list_parent_indices(headers), hits)
        at = np.zeros(rows.num_rows, np.bool_)
        at[owners.to_numpy(zero_copy_only=False)] = True
        return pc.or_(found, pa.array(at))

    def _holds(self, column: pa.Array) -> Any:
        is_text = pa.types.is_string(column.type)
        if self.any_case:
            column = column if is_text else column.view(pa.string())
            return _no_null(pc.match_substring_regex(column, _literal(self.text), ignore_case=True))
        if is_text:
            return _no_null(pc.match_substring_regex(column, _literal(self.text)))
        return _no_null(pc.match_substring_regex(column, _literal_bytes(self.text.encode())))


def _no_null(found: Any) -> Any:
    return pc.fill_null(found, False)


def _literal(text: str) -> str:
    """A pattern of RE2 for a text as it stands, in UTF-8."""
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{{{ord(c):x}}}" for c in text)


def _literal_bytes(raw: bytes) -> str:
    """A pattern of RE2 for bytes as they stand, for columns that are binary."""
    return "".join(chr(b) if chr(b).isalnum() and b < 128 else f"\\x{b:02x}" for b in raw)
