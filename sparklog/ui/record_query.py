"""The query of a URL for records."""

from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from sparklog.errors import InvalidRequestError
from sparklog.format.batch import OFFSET_MAX
from sparklog.ui.browse.limits import RECORDS_MAX, Limits
from sparklog.ui.browse.record_range import Query
from sparklog.ui.page_request import PageRequest

FIELDS: Final = ("partition", "from", "limit")
"""The parameters of records, in the form's order."""
LIMIT: Final = Limits().records
TIME_MS: Final = 8000
_PARTITION_MAX: Final = 2**31 - 1


def record_query(topic: str, request: PageRequest) -> Query:
    """Return the query of a request. Raises: InvalidRequestError, which names the parameter."""
    return Query(
        topic=topic,
        partition=request.number("partition", 0, 0, _PARTITION_MAX),
        start=parse_start(request.fields.get("from", "")),
        limits=Limits(records=request.number("limit", LIMIT, 1, RECORDS_MAX), time_ms=TIME_MS),
    )


def parse_start(text: str) -> int | datetime | None:
    """Parse an offset, a time (UTC without a zone), `earliest`, or `latest`: the last records.

    Raises: InvalidRequestError.
    """
    text = text.strip()
    if text in ("", "latest"):
        return None
    if text == "earliest":
        return 0
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= OFFSET_MAX:
        return int(text)
    try:
        if text.isdigit():
            raise ValueError
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"from={text[:100]}: want an offset, a time such as 2013-07-03T14:00Z, earliest or "
            "latest"
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def query_text(request: PageRequest, **changes: object) -> str:
    """Return the query of a request, "" or "?...", with some fields changed."""
    fields = {name: request.fields[name] for name in FIELDS if request.fields.get(name)}
    fields |= {name.rstrip("_"): str(value) for name, value in changes.items()}
    return f"?{urlencode(fields)}" if fields else ""
