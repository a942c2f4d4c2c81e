"""Requests and responses: values between HTTP and the pages."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote

from sparklog.errors import InvalidRequestError

HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = "application/octet-stream"
TARGET_MAX: Final = 32 << 10
"""Maximum bytes of path and query together."""
_FIELDS_MAX: Final = 50
_ENCODER: Final = json.JSONEncoder(indent=2, ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request: the path's parts, unquoted, and the query's fields.

    `gone`: whether the browser closed the connection. `admitted`: whether the request has the
    token, or none is required.
    """

    parts: tuple[str, ...]
    fields: Mapping[str, str] = field(default_factory=dict)
    gone: Callable[[], bool] = lambda: False
    admitted: bool = True

    @classmethod
    def parse(cls, target: str, **given: Any) -> Self:
        """Parse a request's target. Raises: InvalidRequestError."""
        path, _, query = target.partition("?")
        if not path.startswith("/") or len(target) > TARGET_MAX:
            raise InvalidRequestError("this is not a path of these pages")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
        except ValueError as error:
            raise InvalidRequestError(f"the query can't be read: {error}") from None
        parts = tuple(unquote(part) for part in path[1:].split("/"))
        if any("\0" in text for text in (*parts, *(text for pair in pairs for text in pair))):
            raise InvalidRequestError("there is a zero byte in the request")
        return cls(parts=parts, fields=dict(pairs), **given)

    @property
    def path(self) -> str:
        """The path, unquoted."""
        return "/" + "/".join(self.parts)

    @property
    def root(self) -> str:
        """The relative URL from the path to /, because a proxy may add a prefix to these pages."""
        return "../" * (len(self.parts) - 1) or "./"

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

    def flag(self, name: str) -> bool:
        """Whether a field is given and isn't 0 or false."""
        return self.fields.get(name, "").lower() not in ("", "0", "false", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A response. `live`, `forms`, `scripts`: parts of the page that its policy must allow."""

    body: str | bytes | bytearray
    kind: str = HTML
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    live: bool = False
    forms: bool = False
    scripts: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, value: Any, status: HTTPStatus = HTTPStatus.OK) -> Self:
        """Return a JSON document. Memory: its bytes, without the whole text in addition."""
        body = bytearray()
        for part in _ENCODER.iterencode(value):
            body += part.encode("utf-8", "replace")
        body += b"\n"
        return cls(body=body, kind=JSON, status=status)

    @classmethod
    def of_text(cls, text: str, status: HTTPStatus = HTTPStatus.OK) -> Self:
        """Return plain text."""
        return cls(body=f"{text}\n", kind=TEXT, status=status)
