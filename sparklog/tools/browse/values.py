"""Bytes as people read them: JSON, text, hex; of Avro and Protobuf as registries frame them the id.

What is shown is cut at a number of bytes, and made of no more than these: a record may have 100 MB,
and anything in it. Nothing here is escaped: that is the page's business.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SHOWN_MAX: Final = 256 << 10
"""Most bytes of a value that are shown; the rest is to be fetched."""
_WIDTH: Final = 16  # bytes a line of hex
_INDENT: Final = "  "
_DEPTH_MAX: Final = 40  # beyond it lines aren't indented further: the text would grow as a square
_CONTROLS: Final = {*range(32), 127} - {9, 10, 13}
_REGISTRY_HEADER: Final = struct.Struct(">bI")  # magic byte 0, schema id


class Form(StrEnum):
    """What bytes look like."""

    NULL = "null"
    EMPTY = "empty"
    JSON = "json"
    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class RenderedValue:
    """A value as text. `size`: its bytes; `cut`: whether there are more than `text` shows.

    `schema_id`: of a schema registry's, where the bytes look as one frames them (Avro, Protobuf).
    """

    form: Form
    text: str
    size: int
    cut: bool = False
    schema_id: int | None = None


def render_value(
    raw: bytes | None,
    *,
    most: int = SHOWN_MAX,
    form: Form | None = None,
    size: int | None = None,
) -> RenderedValue:
    """Return bytes as text that begins with their first `most` bytes. `form`: this one, if it can.

    `size`: of all bytes, where `raw` is only their beginning.
    Cost: some ms at 256 KiB of JSON.
    """
    if raw is None:
        return RenderedValue(Form.NULL, "", 0)
    if not raw:
        return RenderedValue(Form.EMPTY, "", 0)
    size = len(raw) if size is None else size
    cut = size > min(most, len(raw))
    schema_id, body = _framed(raw)
    text = None if form is Form.HEX else _text(body[:most], cut=cut)
    if text is None or (schema_id is not None and not _is_json(text, cut=cut)):
        lines = raw[: min(most, SHOWN_MAX // 4)]
        return RenderedValue(Form.HEX, hex_lines(lines), size, len(lines) < size, schema_id)
    if form is not Form.TEXT and _is_json(text, cut=cut) and (pretty := _pretty(text)) is not None:
        return RenderedValue(Form.JSON, pretty, size, schema_id=schema_id)
    return RenderedValue(Form.TEXT, text, size, cut, schema_id)


def preview(raw: bytes | None, most: int, *, size: int | None = None) -> str:
    """Return bytes in one line of about `most` characters, for a table; "" of null."""
    if not raw:
        return ""
    whole = len(raw) if size is None else size
    text = _text(raw[: 4 * most], cut=whole > min(4 * most, len(raw)))
    if text is None:
        found = raw[: most // 3].hex(" ")
        return f"{found} …" if whole > most // 3 else found
    line = " ".join(text.split())
    return f"{line[:most]}…" if len(line) > most or whole > 4 * most else line


def hex_lines(raw: bytes) -> str:
    """Return bytes as lines of offset, hex and ASCII, as `hexdump -C` has them."""
    return "\n".join(_hex_lines(raw))


def _hex_lines(raw: bytes) -> Iterator[str]:
    for at in range(0, len(raw), _WIDTH):
        part = raw[at : at + _WIDTH]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        yield f"{at:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {letters}"


def as_number(raw: bytes | None) -> int | None:
    """Return what Kafka's Integer- and LongSerializer make of 4 or 8 bytes that are no text."""
    if raw is None or len(raw) not in (4, 8) or _text(raw, cut=False) is not None:
        return None
    return int.from_bytes(raw, "big", signed=True)


def _framed(raw: bytes) -> tuple[int | None, bytes]:
    """The schema id and what is behind it; a small number in 8 bytes has the id 0, which none has.

    Source: Confluent's wire format, which other registries took over.
    """
    if len(raw) <= _REGISTRY_HEADER.size or raw[0] != 0:
        return None, raw
    _, schema_id = _REGISTRY_HEADER.unpack_from(raw)
    return (schema_id, raw[_REGISTRY_HEADER.size :]) if schema_id > 0 else (None, raw)


def _text(raw: bytes, *, cut: bool) -> str | None:
    """UTF-8 without control characters, else None; what the cut left of a letter is left out."""
    try:
        found = raw.decode()
    except UnicodeDecodeError as error:
        if not cut or error.start < len(raw) - 3:
            return None
        found = raw[: error.start].decode()
    return None if _CONTROLS.intersection(raw) else found


def _is_json(text: str, *, cut: bool) -> bool:
    if cut or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _pretty(text: str) -> str | None:
    """JSON with a line each member; every literal stays as it is written. None: it grows too much.

    `text` is whole and right. (Parsed and printed again, 1.10 would be 1.1, and doubles be lost.)
    """
    out: list[str] = []
    size, depth, at, limit = 0, 0, 0, 4 * len(text) + (64 << 10)

    def line() -> str:
        return "\n" + _INDENT * min(depth, _DEPTH_MAX)

    while at < len(text):
        letter = text[at]
        if letter == '"':
            end = _string_end(text, at)
            piece = text[at:end]
        else:
            end, piece = at + 1, letter
            if letter in "{[":
                end = _behind_space(text, end)
                if text[end] in "}]":
                    piece, end = letter + text[end], end + 1
                else:
                    depth += 1
                    piece = letter + line()
            elif letter in "}]":
                depth -= 1
                piece = line() + letter
            elif letter == ",":
                piece = "," + line()
            elif letter == ":":
                piece = ": "
            elif letter.isspace():
                piece = ""
        at = end
        size += len(piece)
        if size > limit:
            return None
        out.append(piece)
    return "".join(out)


def _behind_space(text: str, at: int) -> int:
    while text[at].isspace():
        at += 1
    return at


def _string_end(text: str, at: int) -> int:
    end = at + 1
    while text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    return end + 1
