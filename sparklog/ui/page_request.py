"""`PageRequest`: what the pages and the JSON API need to know of an HTTP request."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

from sparklog.errors import InvalidRequestError
from sparklog.format.batch import OFFSET_MAX
from sparklog.ui.browse.limits import RECORDS_MAX, Limits
from sparklog.ui.browse.record_range import Query

INTERNAL_ERROR: Final = "this failed with an internal error; the server's log has it"
"""The response to an exception that nobody expected."""

_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
FIELDS: Final = ("partition", "from", "limit")
"""The parameters of records, in the form's order."""
LIMIT: Final = Limits().records
TIME_MS: Final = 8000
_PARTITION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A request for a page or a document.

    Attributes:
        root: The relative URL from the path to /, because a proxy may add a prefix to the pages.
        fields: The fields of the query.
        stopped: Returns True when the work for the request must end.
    """

    root: str = "./"
    fields: Mapping[str, str] = field(default_factory=dict)
    stopped: Callable[[], bool] = lambda: False

    @classmethod
    def parse(cls, target: str, stopped: Callable[[], bool] = lambda: False) -> Self:
        """Return the values of a request's target, a path and a query."""
        path, _, query = target.partition("?")
        fields = dict(parse_qsl(query, keep_blank_values=True))
        return cls(root="../" * (path.count("/") - 1) or "./", fields=fields, stopped=stopped)

    @classmethod
    def of(cls, request: Request, stopped: Callable[[], bool] = lambda: False) -> Self:
        """Return the values of a request."""
        raw: bytes = request.scope["raw_path"] + b"?" + request.scope["query_string"]
        return cls.parse(raw.decode("latin-1"), stopped)

    def check_fields(self, *names: str) -> None:
        """Raise InvalidRequestError for a field that isn't one of `names`: a mistyped one."""
        if strange := sorted(set(self.fields) - set(names)):
            raise InvalidRequestError(
                f"there is no parameter {strange[0][:100]}; there are {', '.join(names) or 'none'}"
            )

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a field that is a number. Raises: InvalidRequestError."""
        text = self.fields.get(name, "").strip()
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise InvalidRequestError(f"{name}={text[:100]}: want {low}..{high}")
        return int(text)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a field that is 1 or 0. Raises: InvalidRequestError."""
        text = self.fields.get(name, "").strip()
        if not text:
            return default
        if text.lower() not in _FLAGS:
            raise InvalidRequestError(f"{name}={text[:100]}: want 1 or 0")
        return _FLAGS[text.lower()]


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
