"""What clients are shown of users."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sparklog.cli.app import run
from sparklog.kafka import Endpoint
from sparklog.kafka.credentials import Mechanism, ScramCredential
from sparklog.kafka.messages import ErrorCode
from sparklog.kafka.scram_credentials import described
from sparklog.kafka.users import User, change_users, parse_rights, read_users
from sparklog.log.log import Log

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512


def user(name: str, *mechanisms: Mechanism) -> User:
    keys = {m: ScramCredential.from_password(m, "secret", iterations=4096) for m in mechanisms}
    return User(name, parse_rights("read,admin"), keys)


def test_who_is_there() -> None:
    users = {u.name: u for u in (user("b", SHA_512, SHA_256), user("a", SHA_256), user("CN=c"))}
    found = described(users, None)
    keys = {r["user"]: [tuple(c.values()) for c in r["credential_infos"]] for r in found}
    assert keys == {"a": [(1, 4096)], "b": [(1, 4096), (2, 4096)]}
    asked = described(users, ["b", "b", "a", "CN=c", "d"])
    assert [ErrorCode(r["error_code"]).name for r in asked] == [
        "duplicate_resource", "none", "resource_not_found", "resource_not_found",
    ]  # fmt: skip
    assert "secret" not in repr(found)


def test_librdkafkas_admin_client(sparklog_log: Log, tmp_path: Path) -> None:
    file = str(tmp_path / "users.json")
    change_users(file, lambda users: users.update({"alice": user("alice", SHA_512)}))
    with Endpoint(sparklog_log, options={"sasl.users.location": file}) as endpoint:
        admin = AdminClient(
            {
                "bootstrap.servers": endpoint.bootstrap_servers, "sasl.username": "alice",
                "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.password": "secret",
            }
        )  # fmt: skip
        (info,) = admin.describe_user_scram_credentials(None).result(240).items()
        assert info[0] == "alice"
        (held,) = info[1].scram_credential_infos
        assert (held.mechanism, held.iterations) == (ScramMechanism.SCRAM_SHA_512, 4096)
        with pytest.raises(KafkaException, match="RESOURCE_NOT_FOUND"):
            admin.describe_user_scram_credentials(["bob"])["bob"].result(240)
        made = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("bob", made, b"secret")
        with pytest.raises(KafkaException, match="sparklog kafka-users"):
            admin.alter_user_scram_credentials([change])["bob"].result(240)
        assert set(read_users(file)) == {"alice"}
        (tmp_path / "password").write_text("secret\n")
        given = ["--add", "bob", "--password-file", str(tmp_path / "password")]
        assert run(["kafka-users", file, *given]) == 0
    assert set(read_users(file)) == {"alice", "bob"}
