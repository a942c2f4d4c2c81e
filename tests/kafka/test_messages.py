"""Requests and responses: against kio's own writer and reader, cut anywhere, bent anyhow."""

import io
import random
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

from sparklog.kafka.codec import ELEMENTS_MAX, Cursor, Field, Struct, reader
from sparklog.kafka.messages import (
    Api,
    MalformedMessageError,
    Records,
    Request,
    UnsupportedApiError,
    encode,
    read_request,
    unknown_names,
)

VERSIONS = {
    int(api): (min(found), max(found))
    for api in Api
    for found in [list(schema_name_map[api_key_map[int(api)]])]
}
CLIENT: Any = SimpleNamespace(host="", principal="")


def filled(kind: Any, rng: random.Random) -> Any:
    """An entity of one of kio's classes with something in every field."""
    from dataclasses import fields, is_dataclass
    from datetime import UTC, datetime, timedelta
    from types import NoneType, UnionType
    from typing import get_args, get_origin
    from uuid import UUID

    def value(hint: Any, kafka: str) -> Any:
        if get_origin(hint) is UnionType:
            hint = next(a for a in get_args(hint) if a is not NoneType)
        if get_origin(hint) is tuple:
            return tuple(value(get_args(hint)[0], kafka) for _ in range(rng.randint(1, 3)))
        if is_dataclass(hint):
            return filled(hint, rng)
        made: dict[str, Any] = {
            "string": lambda: rng.choice(["", "ä", "x" * 200]), "bool": lambda: True,
            "bytes": lambda: rng.randbytes(5), "records": lambda: rng.randbytes(5000),
            "uuid": lambda: UUID(int=rng.getrandbits(120)), "float64": lambda: 1.5,
            "error_code": lambda: 3, "timedelta_i32": lambda: timedelta(milliseconds=1500),
            "timedelta_i64": lambda: timedelta(milliseconds=2500),
            "datetime_i64": lambda: datetime.fromtimestamp(1700000000, UTC),
        }  # fmt: skip
        if kafka in made:
            return made[kafka]()
        return rng.randrange(1 << (int(kafka.lstrip("uint")) - 1))

    from kio.schema.errors import ErrorCode

    found = {}
    for field in fields(kind):
        given = value(field.type, field.metadata.get("kafka_type", ""))
        if field.metadata.get("kafka_type") == "error_code":
            given = ErrorCode(3)
        found[field.name] = given
    return kind(**found)


def plain(entity: Any) -> Any:
    """What an entity is here: plain objects, durations and times in ms."""
    from dataclasses import fields, is_dataclass
    from datetime import datetime, timedelta

    if isinstance(entity, timedelta):
        return round(entity / timedelta(milliseconds=1))
    if isinstance(entity, datetime):
        return round(entity.timestamp() * 1000)
    if is_dataclass(entity):
        return {field.name: plain(getattr(entity, field.name)) for field in fields(entity)}
    if isinstance(entity, tuple):
        return [plain(each) for each in entity]
    return entity


def as_dict(message: Any) -> Any:
    """A message that was read, as `plain` gives it."""
    if isinstance(message, SimpleNamespace):
        return {name: as_dict(value) for name, value in vars(message).items()}
    if isinstance(message, list):
        return [as_dict(each) for each in message]
    return bytes(message) if isinstance(message, memoryview) else message


def written(entity: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


def frame_of(api: int, version: int, rng: random.Random) -> tuple[bytes, Any]:
    kind = load_request_schema(api, version)
    entity = filled(kind, rng)
    header: Any = kind.__header_schema__(
        request_api_key=api, request_api_version=version, correlation_id=7, client_id="me"
    )
    return written(header) + written(entity), entity


ALL = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in Api
    for version in schema_name_map[api_key_map[int(api)]]
]


@pytest.mark.parametrize(("api", "version"), ALL)
def test_requests_are_read_as_kio_writes_them(api: Api, version: int) -> None:
    frame, entity = frame_of(api, version, random.Random(version))
    found = read_request(memoryview(frame), VERSIONS, CLIENT)
    assert (found.api, found.version, found.correlation_id) == (api, version, 7)
    assert found.client_id == "me"
    assert as_dict(found.body) == plain(entity)


@pytest.mark.parametrize(("api", "version"), ALL)
def test_responses_are_written_as_kio_reads_them(api: Api, version: int) -> None:
    kind = load_response_schema(api, version)
    values = plain(filled(kind, random.Random(version)))
    assert unknown_names(api, values) == []
    request = Request(api, version, 9, None, None, 0, CLIENT)
    frame = b"".join(encode(request, values | {"no_such_field": 1}))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 9
    header: Any = kind.__header_schema__
    body, size = entity_reader(kind)(frame, 8 + bool(header.__flexible__))
    assert 8 + bool(header.__flexible__) + size == len(frame)
    assert plain(body) == values


@pytest.mark.parametrize(("api", "version"), ALL)
def test_what_is_left_out_has_a_default_that_kio_reads(api: Api, version: int) -> None:
    kind = load_response_schema(api, version)
    frame = b"".join(encode(Request(api, version, 9, None, None, 0, CLIENT), {}))
    header: Any = kind.__header_schema__
    _, size = entity_reader(kind)(frame, 8 + bool(header.__flexible__))
    assert 8 + bool(header.__flexible__) + size == len(frame)


@pytest.mark.parametrize(("api", "version"), ALL)
def test_a_request_that_is_cut_is_refused(api: Api, version: int) -> None:
    frame, _ = frame_of(api, version, random.Random(version))
    places = random.Random(1).sample(range(4, len(frame)), min(60, len(frame) - 4))
    for size in places:
        with pytest.raises((MalformedMessageError, UnsupportedApiError)):
            read_request(memoryview(frame[:size]), VERSIONS, CLIENT)


@pytest.mark.parametrize(("api", "version"), ALL)
def test_no_lengths_are_believed(api: Api, version: int) -> None:
    """Bytes as they come, and every length as large as can be: an error or a request, at once."""
    frame, _ = frame_of(api, version, random.Random(version))
    rng = random.Random(version)
    for _ in range(50):
        bent = bytearray(frame)
        at = rng.randrange(4, len(frame))
        bent[at : at + 5] = rng.choice(
            [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff", rng.randbytes(5)]
        )
        try:
            read_request(memoryview(bytes(bent)), VERSIONS, CLIENT)
        except (MalformedMessageError, UnsupportedApiError):
            continue


def test_records_are_neither_copied_nor_joined() -> None:
    first, second = bytes(10_000), bytes(20_000)
    partition = {"partition_index": 0, "records": Records([first, second])}
    response = {"responses": [{"topic": "t", "partitions": [partition]}]}
    buffers = encode(Request(Api.FETCH, 12, 1, None, None, 0, CLIENT), response)
    assert any(buffer is first for buffer in buffers)
    assert any(buffer is second for buffer in buffers)
    body, _ = entity_reader(load_response_schema(1, 12))(b"".join(buffers), 9)
    assert body.responses[0].partitions[0].records == first + second


INT32 = Field("numbers", "int32", is_array=True)


def test_a_message_has_no_more_elements_than_it_may_have() -> None:
    """Empty strings take two bytes of a message each, and far more as objects."""
    read = reader(Struct("s", (Field("names", "string", is_array=True),), is_flexible=False))
    count = ELEMENTS_MAX
    assert len(read(Cursor(struct.pack(">i", count) + bytes(2 * count))).names) == count
    with pytest.raises(MalformedMessageError, match=f"declares {count + 1} array elements"):
        read(Cursor(struct.pack(">i", count + 1) + bytes(2 * (count + 1))))


def test_an_array_is_refused_before_its_elements_are_read() -> None:
    read = reader(Struct("s", (INT32,), is_flexible=False))
    with pytest.raises(MalformedMessageError, match="declares 9 array elements at byte 4"):
        read(Cursor(struct.pack(">ii", 9, 1)))


def test_a_tagged_field_is_as_long_as_it_says() -> None:
    """Else what follows would be read at another place than its sender wrote it."""
    tagged = Field("number", "int32", tag=0)
    read = reader(Struct("s", (tagged,), is_flexible=True))
    assert read(Cursor(b"\1\0\4\0\0\0\7")).number == 7
    for size in (b"\3", b"\5"):
        with pytest.raises(MalformedMessageError, match=r"number isn't [35] bytes long"):
            read(Cursor(b"\1\0" + size + b"\0\0\0\7\0"))
