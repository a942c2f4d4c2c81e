"""Which right each request takes, and that a refusal is one in every version."""

import random
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from sparklog.kafka.authorization import (
    _REFUSALS,
    ANY_RIGHT_APIS,
    UNAUTHENTICATED_APIS,
    denied_response,
    is_allowed,
    required_right,
)
from sparklog.kafka.messages import Api, encode, read_request, unknown_names
from sparklog.kafka.users import ALL, NONE, Right
from tests.kafka.test_messages import CLIENT, VERSIONS, frame_of, plain

CODES = {29, 30, 31}  # TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED
CASES = [
    (api, version) for api in _REFUSALS for version in range(*VERSIONS[api]) if api in VERSIONS
] + [(api, VERSIONS[api][1]) for api in _REFUSALS]


def _codes(values: Any) -> list[int]:
    if isinstance(values, dict):
        own = [int(values["error_code"])] if "error_code" in values else []
        return own + [code for each in values.values() for code in _codes(each)]
    return [c for each in values for c in _codes(each)] if isinstance(values, list) else []


@pytest.mark.parametrize(("api", "version"), CASES)
def test_a_refusal_in_every_version(api: Api, version: int) -> None:
    """It has a code for each thing that was asked for, and clients can read it."""
    frame, entity = frame_of(int(api), version, random.Random(version))
    request = read_request(memoryview(frame), VERSIONS, CLIENT)
    response = denied_response(request)
    assert response is not None and unknown_names(api, response) == []
    data = b"".join(encode(request, response))
    kind = load_response_schema(int(api), version)
    header: Any = kind.__header_schema__
    begin = 8 + bool(header.__flexible__)
    found, read = entity_reader(kind)(data, begin)
    assert begin + read == len(data)
    codes = [code for code in _codes(plain(found)) if code]
    assert codes and set(codes) <= CODES
    for name in ("topics", "topic_data", "topic_names", "resources", "groups_names"):
        asked = getattr(entity, name, None)
        if asked is not None and api not in (Api.OFFSET_DELETE, Api.ALTER_PARTITION_REASSIGNMENTS):
            assert len(codes) >= len(asked)


def test_a_produce_that_wants_no_answer_gets_none() -> None:
    frame, _ = frame_of(0, 9, random.Random(1))
    request = read_request(memoryview(frame), VERSIONS, CLIENT)
    request.body.acks = 0
    assert denied_response(request) is None


def test_each_request_takes_one_right_and_the_unknown_take_the_most() -> None:
    for api in Api:
        assert (api in ANY_RIGHT_APIS) != (api in _REFUSALS), f"{api.name}: say what it takes"
        assert is_allowed(api, ALL)
        assert is_allowed(api, NONE) == (api in UNAUTHENTICATED_APIS)
    assert required_right(Api.FETCH) is Right.READ
    assert required_right(Api.OFFSET_COMMIT) is Right.READ
    assert required_right(Api.PRODUCE) is Right.WRITE
    assert required_right(Api.CREATE_TOPICS) is Right.ADMIN
    assert required_right(Api.METADATA) is None
    readers, writers = frozenset({Right.READ}), frozenset({Right.WRITE})
    assert is_allowed(Api.METADATA, writers) and is_allowed(Api.LIST_OFFSETS, writers)
    assert not is_allowed(Api.FETCH, writers) and not is_allowed(Api.PRODUCE, readers)
    assert not is_allowed(Api.DELETE_RECORDS, readers | writers)
