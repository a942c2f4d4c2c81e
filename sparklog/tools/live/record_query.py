"""A look for records as a URL's query says it, and back."""

from typing import Final
from urllib.parse import urlencode

from sparklog.errors import InvalidRequestError
from sparklog.tools.browse.bounds import Kind, parse_bound
from sparklog.tools.browse.cursors import Cursor
from sparklog.tools.browse.filters import Filters, KeyMatch
from sparklog.tools.browse.limits import BYTES_MAX, MIB, RECORDS_MAX, Limits
from sparklog.tools.browse.looking import Query
from sparklog.tools.live.answers import Asked

FIELDS: Final = (
    "partition", "from", "to", "order", "key", "key_match", "text", "case", "limit", "max_mib",
    "cursor",
)  # fmt: skip
"""The parameters of records, in the form's order."""
LIMIT: Final = 50
SEARCH_MIB: Final = 64
_TIME_MS: Final = 8000
_ORDERS: Final = ("newest", "oldest")
_PARTITIONS_MAX: Final = 100_000


def record_query(topic: str, asked: Asked) -> Query:
    """Return what is looked for. Raises: InvalidRequestError, by the parameter's name."""
    fields = asked.fields
    match = fields.get("key_match") or KeyMatch.EQUALS
    if match not in set(KeyMatch):
        raise InvalidRequestError(f"key_match={match[:100]}: want {', '.join(KeyMatch)}")
    key = fields.get("key", "")
    filters = Filters(
        key=key.encode("utf-8", "replace") if key else None,
        key_match=KeyMatch(match),
        text=fields.get("text", ""),
        any_case=not asked.flag("case"),
    )
    mib = asked.number("max_mib", SEARCH_MIB, 1, BYTES_MAX // MIB)
    return Query(
        topic=topic,
        partitions=_partitions(fields.get("partition", "")),
        start=parse_bound(fields.get("from", ""), name="from", default=Kind.EARLIEST),
        end=parse_bound(fields.get("to", ""), name="to", default=Kind.LATEST),
        newest_first=is_newest_first(asked),
        filters=filters,
        limits=Limits(
            records=asked.number("limit", LIMIT, 1, RECORDS_MAX),
            read_bytes=mib * MIB,
            time_ms=_TIME_MS,
        ),
        cursor=Cursor.parse(fields.get("cursor", "")),
    )


def is_newest_first(asked: Asked) -> bool:
    """Whether the newest come first: where nothing is said, unless it says where to begin."""
    order = asked.fields.get("order") or ("oldest" if asked.fields.get("from") else "newest")
    if order not in _ORDERS:
        raise InvalidRequestError(f"order={order[:100]}: want {' or '.join(_ORDERS)}")
    return order == "newest"


def query_text(asked: Asked, **changes: str | None) -> str:
    """Return the query of a request, "" or "?...", with some fields changed or left out."""
    fields = {name: asked.fields[name] for name in FIELDS if asked.fields.get(name)}
    for name, value in changes.items():
        fields.pop(name.rstrip("_"), None)
        if value:
            fields[name.rstrip("_")] = value
    return f"?{urlencode(fields)}" if fields else ""


def _partitions(text: str) -> tuple[int, ...] | None:
    """Read 0,2-4; "" and "all" are all."""
    if text.strip() in ("", "all"):
        return None
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = (low, high if dash else low)
        if not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends):
            raise InvalidRequestError(f"partition={text[:100]}: want numbers, such as 0 or 0,2-4")
        first, last = map(int, ends)
        if last - first >= _PARTITIONS_MAX or len(found) > _PARTITIONS_MAX:
            raise InvalidRequestError(f"partition={text[:100]}: these are too many")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))
