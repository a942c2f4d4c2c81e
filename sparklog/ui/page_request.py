"""`PageRequest`: the query parameters of an HTTP request, checked and parsed."""

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

INTERNAL_ERROR: Final = "the request failed with an internal error, which is in the server's log"
"""The text of a response to an unexpected exception."""

_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
FIELDS: Final = ("partition", "from", "limit")
"""The query parameters that select records, in the order of the form."""
LIMIT: Final = Limits().records
TIME_MS: Final = 8000
_PARTITION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A request for a page or a document.

    Attributes:
        root: The relative URL of the root, such as `../`. Links are relative, because a proxy may
            serve the pages below a prefix.
        fields: The query parameters.
        stopped: Returns True when the work for the request must end.
    """

    root: str = "./"
    fields: Mapping[str, str] = field(default_factory=dict)
    stopped: Callable[[], bool] = lambda: False

    @classmethod
    def parse(cls, target: str, stopped: Callable[[], bool] = lambda: False) -> Self:
        """Parse the target of a request: a path and a query."""
        path, _, query = target.partition("?")
        fields = dict(parse_qsl(query, keep_blank_values=True))
        return cls(root="../" * (path.count("/") - 1) or "./", fields=fields, stopped=stopped)

    @classmethod
    def of(cls, request: Request, stopped: Callable[[], bool] = lambda: False) -> Self:
        """Parse a request."""
        # raw_path: the decoded path may contain "/" from "%2F", and `root` counts the slashes.
        raw: bytes = request.scope["raw_path"] + b"?" + request.scope["query_string"]
        return cls.parse(raw.decode("latin-1"), stopped)

    def check_fields(self, *names: str) -> None:
        """Check that all query parameters are in `names`, so that a typo is not ignored.

        Raises:
            InvalidRequestError: There is another parameter.
        """
        if strange := sorted(set(self.fields) - set(names)):
            raise InvalidRequestError(
                f"there is no parameter {strange[0][:100]}; this page accepts: "
                f"{', '.join(names) or 'no parameters'}"
            )

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a query parameter as a number, or `default` without the parameter.

        Raises:
            InvalidRequestError: The parameter is not a number from `low` to `high`.
        """
        text = self.fields.get(name, "").strip()
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise InvalidRequestError(
                f"{name}={text[:100]}: {name} must be a number from {low} to {high}"
            )
        return int(text)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a query parameter as a boolean, or `default` without the parameter.

        Raises:
            InvalidRequestError: The parameter is neither 1 nor 0.
        """
        text = self.fields.get(name, "").strip()
        if not text:
            return default
        if text.lower() not in _FLAGS:
            raise InvalidRequestError(f"{name}={text[:100]}: {name} must be 1 or 0")
        return _FLAGS[text.lower()]


def record_query(topic: str, request: PageRequest) -> Query:
    """Return the records that a request selects.

    Raises:
        InvalidRequestError: A parameter is wrong. The message names the parameter.
    """
    return Query(
        topic=topic,
        partition=request.number("partition", 0, 0, _PARTITION_MAX),
        start=parse_start(request.fields.get("from", "")),
        limits=Limits(records=request.number("limit", LIMIT, 1, RECORDS_MAX), time_ms=TIME_MS),
    )


def parse_start(text: str) -> int | datetime | None:
    """Parse the parameter `from`: an offset, a time, `earliest` or `latest`.

    Returns:
        An offset, a time (UTC if `text` has no zone), or None for the last records.

    Raises:
        InvalidRequestError: `text` is none of these.
    """
    text = text.strip()
    if text in ("", "latest"):
        return None
    if text == "earliest":
        return 0
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= OFFSET_MAX:
        return int(text)
    try:
        if text.isdigit():  # too large for an offset; it must not be parsed as a date
            raise ValueError
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"from={text[:100]}: the start must be an offset, a time such as 2013-07-03T14:00Z, "
            "earliest or latest"
        ) from None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def query_text(request: PageRequest, **changes: object) -> str:
    """Return the query string that selects records, with the parameters `changes` replaced.

    A trailing underscore is removed from the names in `changes` (`from_`).

    Returns:
        A string that begins with "?", or "" without parameters.
    """
    fields = {name: request.fields[name] for name in FIELDS if request.fields.get(name)}
    fields |= {name.rstrip("_"): str(value) for name, value in changes.items()}
    return f"?{urlencode(fields)}" if fields else ""
