"""Requests and responses of Kafka's protocol. The only module that uses kio.

kio has a class per message of Kafka 4.1, generated from Kafka's JSON files. Only its schemas are
used here. Its native reader allocates memory for as many elements as a message declares and aborts
the process if that fails (0.6.5), so a client could stop the endpoint.
"""

import enum
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Final, Union, cast, get_args, get_origin
from uuid import UUID

from sparklog.errors import InvalidRequestError
from sparklog.extras import needed
from sparklog.format.checkpoint_files import topic_id_bytes
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
    """Known requests by API key. Source: ApiKeys (Kafka 4.1)."""

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
    """A response encoded once, for requests that differ only in their correlation id."""

    __slots__ = ("_head", "_rest")

    def __init__(self, frame: bytes) -> None:
        self._head, self._rest = frame[:4], frame[8:]  # the correlation id is between them

    def frame(self, correlation_id: int) -> bytes:
        """Return the complete frame of the response to a request."""
        return self._head + correlation_id.to_bytes(4, "big", signed=True) + self._rest


Answer = Response | Encoded
"""The return value of a handler."""


class UnsupportedApiError(InvalidRequestError):
    """A request with an unsupported API key or version, which closes the connection, as in Kafka.

    Only ApiVersions gets a response (UNSUPPORTED_VERSION), which needs its `correlation_id`.
    """

    def __init__(self, message: str, *, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(message)
        self.api_key, self.version, self.correlation_id = api_key, version, correlation_id


@dataclass(slots=True)
class Request:
    """A request. `body` has the fields of its version as attributes, by kio's names.

    Durations are in ms. `size`: bytes of the frame.
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
    """Read a frame without the length prefix. The API and version must be among `versions`.

    Trailing bytes are ignored, as in a broker: librdkafka 2.16 sends three after Metadata 13.

    Raises:
        MalformedMessageError: The frame is invalid. The connection cannot be used any more.
        UnsupportedApiError: The API or the version is not served.
    """
    cursor = Cursor(frame)
    api_key, version = _PREFIX.read(cursor)
    # The version decides the form of all that follows, so nothing else may be read before.
    if api_key not in versions or not versions[api_key][0] <= version <= versions[api_key][1]:
        raise UnsupportedApiError(
            f"API key {api_key} version {version} is not supported by this endpoint",
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
    """Encode a response that is sent more than once; see `encode`."""
    # These responses have no records, so no piece is a file range, which join would reject.
    return Encoded(b"".join(cast("list[Buffer]", encode_as(api, version, 0, response))))


def encode(request: Request, response: Answer) -> list[Piece]:
    """Return the frame of a response, including the length prefix, as pieces in order.

    `response` uses kio's names of the newest version. Fields that the request's version lacks are
    left out, missing fields get their default; durations are in ms, `records` are bytes or
    `Records`.
    """
    if isinstance(response, Encoded):
        return [response.frame(request.correlation_id)]
    return encode_as(request.api, request.version, request.correlation_id, response)


def encode_as(api: Api, version: int, correlation_id: int, response: Response) -> list[Piece]:
    """Return the frame of a response in a given version; see `encode`."""
    schema = _response(int(api), version)
    out = Output()
    out.write(correlation_id.to_bytes(4, "big", signed=True))
    # kio knows that ApiVersions has the old response header in all versions: a client can't know
    # the form before it has read the answer (KIP-511).
    if schema.has_flexible_header:
        out.write(b"\0")
    schema.write(out, response)
    # The size is known only now. A broker's frame starts with it, so insert it in the first piece.
    first = out.buffers[0]
    assert isinstance(first, bytearray)
    first[:0] = out.size.to_bytes(4, "big")
    return [buffer for buffer in out.buffers if buffer]


def unknown_names(api: Api, response: Response) -> list[str]:
    """Return the keys of a response that are in no version of the API; for tests."""
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
    """Reads the first two fields of a request, which select the schema of the rest."""

    def read(self, cursor: Cursor) -> tuple[int, int]:
        at, data = cursor.at, cursor.take(4)
        cursor.at = at  # the header contains them
        return (
            int.from_bytes(data[:2], "big", signed=True),
            int.from_bytes(data[2:], "big", signed=True),
        )


class _Int32:
    """Reads the correlation id that follows the prefix."""

    def read(self, cursor: Cursor) -> int:
        cursor.take(4)
        return int.from_bytes(cursor.take(4), "big", signed=True)


_PREFIX: Final = _Prefix()
_INT32: Final = _Int32()


@cache
def _request(api_key: int, version: int) -> _RequestSchema:
    body = load_request_schema(api_key, version)
    header: Any = body.__header_schema__
    # The client id has the non-compact form even in flexible versions. Source: RequestHeader.json
    plain = Struct("RequestHeader", _struct(header).fields, is_flexible=False)
    return _RequestSchema(reader(plain), bool(header.__flexible__), reader(_struct(body)))


@cache
def _response(api_key: int, version: int) -> _ResponseSchema:
    body = load_response_schema(api_key, version)
    found = _struct(body)
    header: Any = body.__header_schema__
    return _ResponseSchema(found, writer(found), bool(header.__flexible__))


def _struct(kind: Any) -> Struct:
    """Return the schema of a kio class."""
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
        default = -1  # an unknown time
    return Field(field.name, name, array, nullable, tag, default)


_KINDS: Final = {
    "error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64",
    "datetime_i64": "int64",
}  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a default in the representation used here: durations in ms."""
    return round(value / timedelta(milliseconds=1)) if isinstance(value, timedelta) else value


def _empty(kind: str, *, array: bool, nullable: bool) -> Any:
    """Return the default of a type. Source: FieldType's defaults in Kafka's message generator."""
    if array:
        return ()
    if nullable or kind == "uuid":
        return None
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(kind, 0)


def defaults(schema: Struct) -> SimpleNamespace:
    return SimpleNamespace(**{field.name: field.default for field in schema.fields})


def uuid_of(topic_id: str) -> UUID:
    """Return the UUID of a topic id in the text form of partition.metadata."""
    return UUID(bytes=topic_id_bytes(topic_id))
