"""Users with rights, and connections that are theirs."""

from pathlib import Path
from typing import Any

from sparklog.kafka import Endpoint
from sparklog.kafka.credentials import SCRAM, ScramCredential
from sparklog.kafka.messages import Api, ErrorCode
from sparklog.kafka.users import User, change_users, parse_rights
from tests.kafka.wire import Wire


def users_file(directory: Path, **rights: str) -> dict[str, Any]:
    """Make a users' file; each user has its own name as password. Returns an endpoint's options."""
    path = str(directory / "users.json")

    def fill(users: dict[str, User]) -> None:
        for name, held in rights.items():
            keys = {SCRAM[0]: ScramCredential.from_password(SCRAM[0], name, iterations=4096)}
            users[name] = User(name, parse_rights(held), keys)

    change_users(path, fill)
    return {"sasl.users.location": path, "sasl.enabled.mechanisms": "PLAIN"}


def logged_in(endpoint: Endpoint, name: str) -> Wire:
    """Return a connection of a user of `users_file`."""
    wire = Wire(endpoint, timeout_s=60)
    wire.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    answer = wire.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{name}\0{name}".encode())
    assert answer["error_code"] == ErrorCode.none
    return wire
