"""APIs for features that a log does not have: ACLs and quotas of users and clients.

Requests that describe them return an empty result. Requests that change them are refused with a
message that names the replacement.
Source: KafkaApis, AuthHelper; a broker without authorizer (Kafka 4.1).
"""

from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import Api, ErrorCode, Request, Response

_NO_ACLS = (
    "No Authorizer is configured. The endpoint has users with rights instead, which are configured "
    "where it is started"
)
_NO_QUOTAS = (
    "The endpoint has no quotas per user or client. Its limits are options, which are given where "
    "it is started"
)


def apis(_: Broker) -> dict[Api, Served]:
    """Return the handlers of the ACL and quota APIs."""
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
