"""Renders bytes as JSON, text or hex, and recognizes the schema ids of Avro and Protobuf.

Both the processed input and the output are limited, because a record may contain 100 MB of any
bytes. The result is not escaped; the templates escape it.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SHOWN_MAX: Final = 256 << 10
"""Maximum bytes of a displayed value; the rest must be downloaded."""
_WIDTH: Final = 16  # bytes per line of hex
_INDENT: Final = "  "
_DEPTH_MAX: Final = 40  # deeper levels are not indented, because the text would grow quadratically
_CONTROLS: Final = {*range(32), 127} - {9, 10, 13}
_REGISTRY_HEADER: Final = struct.Struct(">bI")  # magic byte 0, schema id


class Form(StrEnum):
    """The form in which bytes are displayed."""

    NULL = "null"
    EMPTY = "empty"
    JSON = "json"
    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class RenderedValue:
    """Bytes in a form for display.

    Attributes:
        form: The form of `text`.
        text: The bytes as text.
        size: The number of all bytes.
        cut: Whether `text` shows only the beginning.
        schema_id: The id in the prefix that serializers of a schema registry write (Avro,
            Protobuf), or None without such a prefix.
        number: The value of 4 or 8 bytes as Kafka's IntegerSerializer and LongSerializer write it,
            or None for other bytes and for text.
    """

    form: Form
    text: str
    size: int
    cut: bool = False
    schema_id: int | None = None
    number: int | None = None


def render_value(
    raw: bytes | None,
    *,
    most: int = SHOWN_MAX,
    form: Form | None = None,
    size: int | None = None,
) -> RenderedValue:
    """Render the first `most` bytes of a key or value as text.

    Args:
        raw: The bytes, or None for null.
        most: The maximum bytes to render.
        form: The requested form. Bytes that are not text are always rendered as hex.
        size: The full size of the value, if `raw` is already truncated.

    Cost: some ms for 256 KiB of JSON.
    """
    if raw is None:
        return RenderedValue(Form.NULL, "", 0)
    if not raw:
        return RenderedValue(Form.EMPTY, "", 0)
    size = len(raw) if size is None else size
    cut = size > min(most, len(raw))
    schema_id, body = _framed(raw)
    text = None if form is Form.HEX else _text(body[:most], cut=cut)
    # Framed Avro and Protobuf may happen to be valid UTF-8, but are no text; framed JSON is.
    if text is None or (schema_id is not None and not _is_json(text, cut=cut)):
        # A byte takes about four characters of hex and ASCII.
        lines = raw[: min(most, SHOWN_MAX // 4)]
        number = int.from_bytes(raw, "big", signed=True) if _is_number(raw, cut=cut) else None
        return RenderedValue(Form.HEX, hex_lines(lines), size, len(lines) < size, schema_id, number)
    if form is not Form.TEXT and _is_json(text, cut=cut) and (pretty := _pretty(text)) is not None:
        return RenderedValue(Form.JSON, pretty, size, schema_id=schema_id)
    return RenderedValue(Form.TEXT, text, size, cut, schema_id)


def preview(raw: bytes | None, most: int, *, size: int | None = None) -> str:
    """Render bytes as a line of about `most` characters, for a table. Null is ""."""
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
    """Render bytes as lines of offset, hex and ASCII, like `hexdump -C`."""
    return "\n".join(_hex_lines(raw))


def _hex_lines(raw: bytes) -> Iterator[str]:
    for at in range(0, len(raw), _WIDTH):
        part = raw[at : at + _WIDTH]
        letters = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        yield f"{at:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {letters}"


def _is_number(raw: bytes, *, cut: bool) -> bool:
    return not cut and len(raw) in (4, 8) and _text(raw, cut=False) is None


def _framed(raw: bytes) -> tuple[int | None, bytes]:
    """Return the schema id and the data after the id, or None and all bytes.

    Source: Confluent's wire format, which other schema registries adopted.
    """
    if len(raw) <= _REGISTRY_HEADER.size or raw[0] != 0:
        return None, raw
    _, schema_id = _REGISTRY_HEADER.unpack_from(raw)
    # A small long also starts with 0. Its id would be 0, which no registry uses.
    return (schema_id, raw[_REGISTRY_HEADER.size :]) if schema_id > 0 else (None, raw)


def _text(raw: bytes, *, cut: bool) -> str | None:
    """Decode UTF-8 text. Return None if the bytes are not text or have control characters.

    `cut`: the bytes are truncated, so the last character may be incomplete and is dropped.
    """
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
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return False
    return True


def _pretty(text: str) -> str | None:
    """Indent valid JSON with a line per member. Return None if the result is too large."""
    # Not json.dumps(json.loads(text)): that changes 1.10 to 1.1, and drops duplicate keys.
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
