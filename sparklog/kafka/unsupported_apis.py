"""What a cluster has and a log hasn't: ACLs and quotas of single clients.

Tools that ask for them get an answer, and whoever would change them is told where it is done.
Source: KafkaApis, AuthHelper; a broker without authorizer (Kafka 4.1).
"""

from sparklog.kafka.apis import Response, Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import Api, ErrorCode, Request

_NO_ACLS = (
    "No Authorizer is configured: the endpoint's own users and their rights say who may do what, "
    "and are given where it is started"
)
_NO_QUOTAS = (
    "there are no quotas of single users or clients: the endpoint's limits are options, which are "
    "given where it is started"
)


def apis(_: Broker) -> dict[Api, Served]:
    """Return what is served here."""
    return {
        Api.DESCRIBE_ACLS: Served((1, 3), _describe_acls),
        Api.CREATE_ACLS: Served((1, 3), _create_acls),
        Api.DELETE_ACLS: Served((1, 3), _delete_acls),
        Api.DESCRIBE_CLIENT_QUOTAS: Served((0, 1), _describe_quotas),
        Api.ALTER_CLIENT_QUOTAS: Served((0, 1), _alter_quotas),
    }


def _describe_acls(_: Request) -> Response:
    return {
        "error_code": ErrorCode.security_disabled, "error_message": _NO_ACLS, "resources": [],
    }  # fmt: skip


def _create_acls(request: Request) -> Response:
    refused = {"error_code": ErrorCode.security_disabled, "error_message": _NO_ACLS}
    return {"results": [refused for _ in request.body.creations]}


def _delete_acls(request: Request) -> Response:
    refused = {"error_code": ErrorCode.security_disabled, "error_message": _NO_ACLS}
    return {"filter_results": [{**refused, "matching_acls": []} for _ in request.body.filters]}


def _describe_quotas(_: Request) -> Response:
    return {"error_code": ErrorCode.none, "error_message": None, "entries": []}


def _alter_quotas(request: Request) -> Response:
    refused = {"error_code": ErrorCode.invalid_request, "error_message": _NO_QUOTAS}
    return {
        "entries": [
            {
                **refused,
                "entity": [
                    {"entity_type": part.entity_type, "entity_name": part.entity_name}
                    for part in entry.entity
                ],
            }
            for entry in request.body.entries
        ]
    }
