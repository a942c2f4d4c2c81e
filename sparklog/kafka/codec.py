"""Kafka's wire format: reads and writes messages by their schema, within memory limits.

A message is a struct of fields. Flexible versions (KIP-482) use compact lengths and end with tagged
fields. The schemas come from `messages`. Input is untrusted: a length is not used before its bytes
have arrived, and the number of objects per message is limited.
"""

import itertools
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from sparklog.errors import InvalidRequestError
from sparklog.log.verified_batches import FileRange

ELEMENTS_MAX: Final = 1 << 18
"""Array elements per message; limits the Python objects of a message to about 100 MB."""
KEPT_BYTES: Final = 4096  # written pieces above this size are not copied
Buffer = bytes | bytearray | memoryview
Piece = Buffer | FileRange
"""A piece of an outgoing message: memory, or a file range that is sent from the file."""
_ZERO_UUID: Final = UUID(int=0)


class MalformedMessageError(InvalidRequestError):
    """The bytes received are not a valid message; none of them was used."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    `kind`: Kafka's name of the type (int8 ... int64, uint16, uint32, float64, bool, string, bytes,
    records, uuid), or "struct" with the schema in `struct`. `tag`: of a tagged field. `default`:
    value of a missing tagged field, and of a field that the writer does not set.
    """

    name: str
    kind: str
    is_array: bool = False
    is_nullable: bool = False
    tag: int | None = None
    default: Any = None
    struct: "Struct | None" = None


@dataclass(frozen=True, slots=True)
class Struct:
    """The schema of a version of a message or of a part of a message."""

    name: str
    fields: tuple[Field, ...]
    is_flexible: bool


class Cursor:
    """Reads fields from `data`; `at` is the current position."""

    __slots__ = ("at", "data", "elements", "end")

    def __init__(self, data: Buffer, at: int = 0) -> None:
        self.data, self.at, self.end = data, at, len(data)
        self.elements = 0

    def take(self, size: int) -> Buffer:
        """Return the next `size` bytes. A memoryview is sliced without copying."""
        at = self.at
        if size < 0 or size > self.end - at:
            raise MalformedMessageError(
                f"the message has {self.end} bytes and declares {size} more at byte {at}"
            )
        self.at = at + size
        return self.data[at : at + size]

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Return the values of the next bytes in `form`."""
        at, size = self.at, form.size
        if size > self.end - at:
            self.take(size)  # raises the error
        self.at = at + size
        return form.unpack_from(self.data, at)

    def varint(self) -> int:
        """Read an unsigned varint of at most 32 bits."""
        # Nearly all varints are lengths and tags below 128: they are read without the loop.
        if self.at < self.end and self.data[self.at] < 0x80:
            self.at += 1
            return self.data[self.at - 1]
        value = shift = 0
        while True:
            if self.at >= self.end or shift > 28:
                raise MalformedMessageError(f"there is no valid varint at byte {self.at}")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF
            shift += 7

    def count(self, size: int) -> int:
        """Check the length of an array before the elements are read, and return the length."""
        # Every element takes at least a byte, so a larger count is a lie. Without this check, a
        # message of 20 bytes could make the reader allocate a list of 2 billion elements.
        self.elements += size
        if size > self.end - self.at or self.elements > ELEMENTS_MAX:
            raise MalformedMessageError(
                f"the message of {self.end} bytes declares {size} array elements at byte {self.at}"
            )
        return size


Read = Callable[[Cursor], Any]
Write = Callable[["Output", Any], None]
_FORMATS: Final = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I",
    "float64": "d", "bool": "?",
}  # fmt: skip
_FIXED: Final = {name: struct.Struct(">" + form) for name, form in _FORMATS.items()}
_INT32: Final = _FIXED["int32"]


# --- reading -------------------------------------------------------------------------------------


def reader(schema: Struct) -> Read:
    """Return a function that reads a struct as an object with an attribute per field.

    Arrays become lists; records and bytes are slices of the message; the zero UUID is None. The
    function raises MalformedMessageError.
    """
    plain = [_run_reader(run, schema.is_flexible) for run in _runs(schema)]
    tagged = {
        f.tag: (f.name, _field_reader(f, schema.is_flexible))
        for f in schema.fields
        if f.tag is not None
    }
    missing = {f.name: f.default for f in schema.fields if f.tag is not None}
    is_flexible = schema.is_flexible

    # The functions are composed once per schema, so that no message has its schema interpreted.
    def read(cursor: Cursor) -> SimpleNamespace:
        message = SimpleNamespace(**missing)
        values = message.__dict__
        for read_run in plain:
            read_run(cursor, values)
        if is_flexible:
            _read_tagged(cursor, tagged, values)
        return message

    return read


def _runs(schema: Struct) -> list[tuple[Field, ...]]:
    """Return the untagged fields in order, grouping adjacent fields of fixed size."""
    found: list[tuple[Field, ...]] = []
    plain = (field for field in schema.fields if field.tag is None)
    for is_fixed, run in itertools.groupby(plain, lambda f: f.kind in _FORMATS and not f.is_array):
        fields = tuple(run)
        found += [fields] if is_fixed else [(field,) for field in fields]
    return found


def _run_format(run: tuple[Field, ...]) -> struct.Struct | None:
    """Return the struct format of a group of fields of fixed size, or None for any other field."""
    if run[0].kind not in _FORMATS or run[0].is_array:
        return None
    return struct.Struct(">" + "".join(_FORMATS[field.kind] for field in run))


def _run_reader(
    run: tuple[Field, ...], flexible: bool
) -> Callable[[Cursor, dict[str, Any]], object]:
    names, form = tuple(field.name for field in run), _run_format(run)
    # One call of struct reads all adjacent fields of fixed size, instead of a call per field.
    if form is not None:

        def read_fixed(cursor: Cursor, values: dict[str, Any]) -> None:
            values.update(zip(names, cursor.unpack(form), strict=True))

        return read_fixed
    (name,), read = names, _field_reader(run[0], flexible)

    def read_one(cursor: Cursor, values: dict[str, Any]) -> None:
        values[name] = read(cursor)

    return read_one


def skip_tagged_fields(cursor: Cursor) -> None:
    """Skip tagged fields in a position where none is known."""
    _read_tagged(cursor, {}, {})


def _read_tagged(
    cursor: Cursor, known: Mapping[int, tuple[str, Read]], values: dict[str, Any]
) -> None:
    for _ in range(cursor.count(cursor.varint())):
        tag, size = cursor.varint(), cursor.varint()
        # Clients of later versions may send tags that this schema lacks (KIP-482).
        if tag not in known:
            cursor.take(size)
            continue
        name, read = known[tag]
        end = cursor.at + size
        values[name] = read(cursor)
        if cursor.at != end:
            raise MalformedMessageError(f"tagged field {name} isn't {size} bytes long")


def _field_reader(field: Field, flexible: bool) -> Read:
    if not field.is_array:
        return _value_reader(field, flexible, nullable=field.is_nullable)
    element = _value_reader(field, flexible, nullable=False)

    # Compact lengths are greater by 1, so that 0 means null (KIP-482).
    def read_array(cursor: Cursor) -> list[Any] | None:
        size = cursor.varint() - 1 if flexible else cursor.unpack(_INT32)[0]
        if size < 0:
            if field.is_nullable and size == -1:
                return None
            raise MalformedMessageError(f"{field.name} has an invalid array length, {size}")
        return [element(cursor) for _ in range(cursor.count(size))]

    return read_array


def _value_reader(field: Field, flexible: bool, *, nullable: bool) -> Read:
    kind = field.kind
    if kind == "struct":
        assert field.struct is not None
        inner = reader(field.struct)
        return _nullable_struct_reader(inner) if nullable else inner
    if kind in _FIXED:
        form = _FIXED[kind]
        return lambda cursor: cursor.unpack(form)[0]
    if kind == "uuid":
        return _read_uuid
    length = _length_reader(field, flexible)

    def read_bytes(cursor: Cursor) -> Buffer | None:
        size = length(cursor)
        if size < 0:
            if nullable and size == -1:
                return None
            raise MalformedMessageError(f"{field.name} has an invalid length, {size}")
        return cursor.take(size)

    return _text_reader(field.name, read_bytes) if kind == "string" else read_bytes


def _length_reader(field: Field, flexible: bool) -> Callable[[Cursor], int]:
    if flexible:
        return lambda cursor: cursor.varint() - 1
    form = _FIXED["int16" if field.kind == "string" else "int32"]
    return lambda cursor: int(cursor.unpack(form)[0])


def _text_reader(name: str, read_bytes: Callable[[Cursor], Buffer | None]) -> Read:
    def read_text(cursor: Cursor) -> str | None:
        data = read_bytes(cursor)
        if data is None:
            return None
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessageError(f"{name} isn't UTF-8: {error}") from None

    return read_text


def _nullable_struct_reader(inner: Read) -> Read:
    def read(cursor: Cursor) -> Any:
        # Also in flexible versions a byte, not a tag: -1 means null.
        (marker,) = cursor.unpack(_FIXED["int8"])
        return None if marker < 0 else inner(cursor)

    return read


def _read_uuid(cursor: Cursor) -> UUID | None:
    data = bytes(cursor.take(16))
    return UUID(bytes=data) if any(data) else None


# --- writing -------------------------------------------------------------------------------------


class Output:
    """A message that is being written, as buffers. Large buffers belong to the caller.

    `small`: the last buffer, to which short pieces are appended.
    """

    __slots__ = ("buffers", "small")

    def __init__(self) -> None:
        self.small = bytearray()
        self.buffers: list[Piece] = [self.small]

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return sum(map(len, self.buffers))

    def write(self, data: Piece) -> None:
        """Append bytes."""
        if not isinstance(data, FileRange) and len(data) <= KEPT_BYTES:
            self.small += data
        else:
            self.small = bytearray()
            self.buffers += (data, self.small)

    def varint(self, value: int) -> None:
        """Append an unsigned varint."""
        while value > 0x7F:
            self.small.append(value & 0x7F | 0x80)
            value >>= 7
        self.small.append(value)


class Records:
    """Record batches in several pieces, as a value of kind `records`."""

    __slots__ = ("buffers", "size")

    def __init__(self, buffers: Iterable[Piece]) -> None:
        self.buffers = list(buffers)
        self.size = sum(map(len, self.buffers))

    def __len__(self) -> int:
        return self.size


def writer(schema: Struct) -> Write:
    """Return a function that writes a mapping, keyed by a struct's field names.

    A missing value, or None for a field that is not nullable, becomes the field's default. Unknown
    keys are ignored, because callers use the newest version's names.
    """
    plain = [_run_writer(run, schema.is_flexible) for run in _runs(schema)]
    tagged = sorted(
        ((f.tag, f, _field_writer(f, True)) for f in schema.fields if f.tag is not None),
        key=lambda item: item[0],
    )
    is_flexible = schema.is_flexible

    def write(out: Output, values: Mapping[str, Any]) -> None:
        for write_run in plain:
            write_run(out, values)
        if is_flexible and not tagged:
            out.varint(0)
        elif is_flexible:
            # A tag with its default value is left out, as by Kafka's generated classes.
            given = [
                (tag, write_field, values[field.name])
                for tag, field, write_field in tagged
                if field.name in values and values[field.name] != field.default
            ]
            _write_tagged(out, given)

    return write


def _run_writer(
    run: tuple[Field, ...], flexible: bool
) -> Callable[[Output, Mapping[str, Any]], object]:
    form = _run_format(run)
    defaults = [(field.name, field.default) for field in run]
    if form is not None:
        pack = form.pack

        def write_fixed(out: Output, values: Mapping[str, Any]) -> None:
            get = values.get
            out.small += pack(*[get(name, default) or 0 for name, default in defaults])

        return write_fixed
    ((name, default),), write = defaults, _field_writer(run[0], flexible)

    def write_one(out: Output, values: Mapping[str, Any]) -> None:
        write(out, values.get(name, default))

    return write_one


def _write_tagged(out: Output, given: list[tuple[int, Write, Any]]) -> None:
    out.varint(len(given))
    for tag, write, value in given:
        # The size precedes the value and is known only after the value was written.
        inner = Output()
        write(inner, value)
        out.varint(tag)
        out.varint(inner.size)
        for data in inner.buffers:
            out.write(data)


def _field_writer(field: Field, flexible: bool) -> Write:
    if not field.is_array:
        return _value_writer(field, flexible, nullable=field.is_nullable)
    element = _value_writer(field, flexible, nullable=False)
    pack = _FIXED["int32"].pack

    def write_array(out: Output, values: Any) -> None:
        if values is None and not field.is_nullable:
            values = ()
        size = -1 if values is None else len(values)
        if flexible:
            out.varint(size + 1)
        else:
            out.small += pack(size)
        for value in values or ():
            element(out, value)

    return write_array


def _value_writer(field: Field, flexible: bool, *, nullable: bool) -> Write:
    kind = field.kind
    if kind == "struct":
        assert field.struct is not None
        inner = writer(field.struct)
        return _nullable_struct_writer(inner) if nullable else inner
    if kind in _FIXED:
        pack = _FIXED[kind].pack
        return lambda out, value: out.write(pack(value or 0))
    if kind == "uuid":
        return lambda out, value: out.write((value or _ZERO_UUID).bytes)
    length = _FIXED["int16" if kind == "string" else "int32"].pack

    def write_bytes(out: Output, value: Any) -> None:
        if value is None and not nullable:
            value = b""
        data = value.encode() if isinstance(value, str) else value
        size = -1 if data is None else len(data)
        if flexible:
            out.varint(size + 1)
        else:
            out.small += length(size)
        if not data:
            return
        if isinstance(data, Records):
            for buffer in data.buffers:
                out.write(buffer)
        else:
            out.write(data)

    return write_bytes


def _nullable_struct_writer(inner: Write) -> Write:
    def write(out: Output, value: Any) -> None:
        out.write(b"\xff" if value is None else b"\1")
        if value is not None:
            inner(out, value)

    return write
