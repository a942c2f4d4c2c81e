"""DescribeUserScramCredentials, AlterUserScramCredentials (kafka-configs --entity-type users).

The users' file is authoritative, and only `sparklog kafka-users` changes it: a client that could
change users could give itself any right. Source: ScramImage.describe, ScramControlManager (Kafka
4.1), KIP-554.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.credentials import Mechanism
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.kafka.users import User

_NUMBERS: Final = {Mechanism.SCRAM_SHA_256: 1, Mechanism.SCRAM_SHA_512: 2}
"""Source: ScramMechanism."""


def apis(broker: Broker) -> dict[Api, Served]:
    def describe(request: Request) -> Response:
        asked = request.body.users
        names = None if not asked else [user.name for user in asked]
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "results": described(broker.security.users.known, names),
        }

    def alter(request: Request) -> Response:
        changes = (*request.body.deletions, *request.body.upsertions)
        refused = {
            "error_code": ErrorCode.invalid_request,
            "error_message": "users are changed by `sparklog kafka-users`, on the endpoint's host",
        }
        names = dict.fromkeys(each.name for each in changes)
        return {"results": [{"user": name, **refused} for name in names]}

    return {
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS: Served((0, 0), describe),
        Api.ALTER_USER_SCRAM_CREDENTIALS: Served((0, 0), alter),
    }


def described(users: Mapping[str, User], names: Iterable[str] | None) -> list[dict[str, Any]]:
    """Return the mechanisms of the users in `names`; None selects all users.

    A user without a SCRAM mechanism counts as missing.
    """
    held = {name: user for name, user in users.items() if user.credentials}
    times = Counter(sorted(held) if names is None else names)
    return [_result(name, held.get(name), count > 1) for name, count in times.items()]


def _result(name: str, user: User | None, is_twice: bool) -> dict[str, Any]:
    code, message = ErrorCode.none, None
    if is_twice:
        code = ErrorCode.duplicate_resource
        message = f"Cannot describe SCRAM credentials for the same user twice in a request: {name}"
    elif user is None:
        code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {name}"
    infos = [] if code is not ErrorCode.none or user is None else [
        {"mechanism": _NUMBERS[mechanism], "iterations": credential.iterations}
        for mechanism, credential in sorted(user.credentials.items())
    ]  # fmt: skip
    return {
        "user": name, "error_code": code, "error_message": message, "credential_infos": infos,
    }  # fmt: skip
