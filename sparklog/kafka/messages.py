"""Requests and responses of Kafka's protocol. The only module that knows where they come from: kio.

kio has every message of Kafka 4.1 as a class, generated from Kafka's own JSON files. Its schemas
are what is used here: its native reader takes memory for as many elements as a message says that it
has, and ends the process when there isn't so much (0.6.5), which a client must not be able to.
"""

import enum
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Final, Union, cast, get_args, get_origin

from sparklog.errors import InvalidRequestError
from sparklog.extras import needed
from sparklog.kafka.client import Client
from sparklog.kafka.codec import (
    Buffer,
    Cursor,
    Field,
    MalformedMessageError,
    Output,
    Piece,
    Read,
    Records,
    Struct,
    Write,
    reader,
    skip_tagged_fields,
    writer,
)

with needed(InvalidRequestError):
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.errors import ErrorCode
    from kio.schema.index import api_key_map, schema_name_map

__all__ = [
    "Answer", "Api", "Encoded", "ErrorCode", "MalformedMessageError", "Records", "Request",
    "Response",
    "UnsupportedApiError", "encode", "read_request",
]  # fmt: skip
Response = Mapping[str, Any]
"""A response by the field names of its newest version; see `encode`."""


class Api(enum.IntEnum):
    """The requests that are known here, by their API key. Source: ApiKeys (Kafka 4.1)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Encoded:
    """A response that was encoded once, for requests that differ in nothing but their number."""

    __slots__ = ("_head", "_rest")

    def __init__(self, frame: bytes) -> None:
        self._head, self._rest = frame[:4], frame[8:]  # between them the correlation id

    def frame(self, correlation_id: int) -> bytes:
        """Return the whole of it, as the answer to a request."""
        return self._head + correlation_id.to_bytes(4, "big", signed=True) + self._rest


Answer = Response | Encoded
"""What a handler gives."""


class UnsupportedApiError(InvalidRequestError):
    """A request of an API key or version that isn't served: answered by closing, as Kafka does.

    ApiVersions alone is answered (UNSUPPORTED_VERSION), which needs its `correlation_id`.
    """

    def __init__(self, message: str, *, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(message)
        self.api_key, self.version, self.correlation_id = api_key, version, correlation_id


@dataclass(slots=True)
class Request:
    """One request. `body` has the fields of its version as attributes, by kio's names.

    Durations are in ms. `size`: bytes of its frame.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    size: int
    connection: Client


def read_request(
    frame: Buffer, versions: Mapping[int, tuple[int, int]], connection: Client
) -> Request:
    """Read a frame, without its length, whose API and version are among `versions`.

    Bytes behind the request are passed over, as a broker does: librdkafka 2.16's Metadata 13 has
    three.

    Raises: MalformedMessageError: the connection is of no more use. UnsupportedApiError.
    """
    cursor = Cursor(frame)
    api_key, version = _PREFIX.read(cursor)
    if api_key not in versions or not versions[api_key][0] <= version <= versions[api_key][1]:
        raise UnsupportedApiError(
            f"API key {api_key} version {version} isn't served here",
            api_key=api_key,
            version=version,
            correlation_id=_INT32.read(cursor),
        )
    schema = _request(api_key, version)
    header = schema.read_header(cursor)
    if schema.has_flexible_header:
        skip_tagged_fields(cursor)
    body = schema.read(cursor)
    api = Api(api_key)
    correlation_id, client_id = header.correlation_id, header.client_id
    return Request(api, version, correlation_id, client_id, body, len(frame), connection)


def prepare(api: Api, version: int, response: Mapping[str, Any]) -> Encoded:
    """Encode a response that is to be given more than once; see `encode`."""
    # No such response has records, so no piece is a range of a file; join would refuse that.
    return Encoded(b"".join(cast("list[Buffer]", encode_as(api, version, 0, response))))


def encode(request: Request, response: Answer) -> list[Piece]:
    """Return the frame of a response, its length included, in pieces to be sent in their order.

    `response` goes by kio's names of the newest version: what the request's version hasn't is left
    out, what is missing has its default; durations are in ms, `records` bytes or `Records`.
    """
    if isinstance(response, Encoded):
        return [response.frame(request.correlation_id)]
    return encode_as(request.api, request.version, request.correlation_id, response)


def encode_as(api: Api, version: int, correlation_id: int, response: Response) -> list[Piece]:
    """Return the frame of a response of another version than was asked for; see `encode`."""
    schema = _response(int(api), version)
    out = Output()
    out.write(correlation_id.to_bytes(4, "big", signed=True))
    if schema.has_flexible_header:
        out.write(b"\0")
    schema.write(out, response)
    first = out.buffers[0]
    assert isinstance(first, bytearray)
    first[:0] = out.size.to_bytes(4, "big")
    return [buffer for buffer in out.buffers if buffer]


def unknown_names(api: Api, response: Response) -> list[str]:
    """Return the keys of a response that no version of it has: slips, for tests."""
    found: list[str] = []
    structs = [_response(int(api), v).struct for v in schema_name_map[api_key_map[int(api)]]]
    _compare(structs, response, "", found)
    return found


def _compare(structs: list[Struct], values: Mapping[str, Any], path: str, out: list[str]) -> None:
    named: dict[str, list[Field]] = {}
    for schema in structs:
        for field in schema.fields:
            named.setdefault(field.name, []).append(field)
    for name, value in values.items():
        if name not in named:
            out.append(path + name)
            continue
        inner = [field.struct for field in named[name] if field.struct is not None]
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Mapping):
                _compare(inner, item, f"{path}{name}.", out)


# --- schemas -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RequestSchema:
    read_header: Read
    has_flexible_header: bool
    read: Read


@dataclass(frozen=True, slots=True)
class _ResponseSchema:
    struct: Struct
    write: Write
    has_flexible_header: bool


class _Prefix:
    """The first two fields of a request, which say how the rest is to be read."""

    def read(self, cursor: Cursor) -> tuple[int, int]:
        at, data = cursor.at, cursor.take(4)
        cursor.at = at  # they are part of the header
        return (
            int.from_bytes(data[:2], "big", signed=True),
            int.from_bytes(data[2:], "big", signed=True),
        )


class _Int32:
    """The correlation id behind the prefix."""

    def read(self, cursor: Cursor) -> int:
        cursor.take(4)
        return int.from_bytes(cursor.take(4), "big", signed=True)


_PREFIX: Final = _Prefix()
_INT32: Final = _Int32()


@cache
def _request(api_key: int, version: int) -> _RequestSchema:
    body = load_request_schema(api_key, version)
    header: Any = body.__header_schema__
    # Its client id has the old form in flexible versions, too. Source: RequestHeader.json
    plain = Struct("RequestHeader", _struct(header).fields, is_flexible=False)
    return _RequestSchema(reader(plain), bool(header.__flexible__), reader(_struct(body)))


@cache
def _response(api_key: int, version: int) -> _ResponseSchema:
    body = load_response_schema(api_key, version)
    found = _struct(body)
    header: Any = body.__header_schema__
    return _ResponseSchema(found, writer(found), bool(header.__flexible__))


def _struct(kind: Any) -> Struct:
    """Return the schema that one of kio's classes is."""
    found = tuple(_field(field) for field in fields(kind))
    return Struct(kind.__name__, found, bool(kind.__flexible__))


def _field(field: Any) -> Field:
    kind, nullable, array = field.type, False, False
    if get_origin(kind) in (UnionType, Union):
        nullable = True
        kind = next(inner for inner in get_args(kind) if inner is not NoneType)
    if get_origin(kind) is tuple:
        array, kind = True, get_args(kind)[0]
        if get_origin(kind) in (UnionType, Union):
            kind = next(inner for inner in get_args(kind) if inner is not NoneType)
    tag = field.metadata.get("tag")
    if is_dataclass(kind):
        inner = _struct(kind)
        whole = None if nullable or array else defaults(inner)
        return Field(field.name, "struct", array, nullable, tag, whole, inner)
    name = _KINDS.get(field.metadata["kafka_type"], field.metadata["kafka_type"])
    if field.default is MISSING:
        default = _empty(name, array=array, nullable=nullable)
    else:
        default = _plain(field.default)
    if default is None and name == "int64":
        default = -1  # a time that isn't known
    return Field(field.name, name, array, nullable, tag, default)


_KINDS: Final = {
    "error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64",
    "datetime_i64": "int64",
}  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a default as values are given and read here: durations in ms."""
    return round(value / timedelta(milliseconds=1)) if isinstance(value, timedelta) else value


def _empty(kind: str, *, array: bool, nullable: bool) -> Any:
    """Return the default of a type. Source: FieldType's defaults in Kafka's message generator."""
    if array:
        return ()
    if nullable or kind == "uuid":
        return None
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(kind, 0)


def defaults(schema: Struct) -> SimpleNamespace:
    """Return what a struct is of which nothing was said."""
    return SimpleNamespace(**{field.name: field.default for field in schema.fields})
