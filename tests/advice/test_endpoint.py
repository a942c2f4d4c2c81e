"""The advice of the endpoint for Kafka's clients, and of the pages' server."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
import trustme
from confluent_kafka.admin import AdminClient

import sparklog
from sparklog.cli.app import run
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError, StorageUnavailableError
from sparklog.kafka import Endpoint
from sparklog.kafka.listeners import parse_address
from sparklog.kafka.messages import Api, ErrorCode
from sparklog.kafka.users import read_users
from sparklog.log.log import Log
from sparklog.tools.console.producing import Records, produce
from sparklog.tools.moving import kafka_client
from sparklog.tools.moving.import_kafka import KafkaSource, import_topic
from sparklog.ui.access import tls_files
from tests.kafka.wire import Wire
from tests.ports import free_port

pytestmark = pytest.mark.sparklog(topics={"t": 1})
BROKER = 4  # a type of resource


def files(home: Path) -> tuple[str, str, str]:
    """Return the files of a certificate with its key, of its authority, and of users."""
    authority = trustme.CA()
    pem, users, password = home / "server.pem", home / "users.json", home / "password"
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    authority.cert_pem.write_to_path(home / "ca.pem")
    os.chmod(pem, 0o600)
    password.write_text("secret\n")
    assert run(["kafka-users", str(users), "--add", "a", "--password-file", str(password)]) == 0
    return str(pem), str(home / "ca.pem"), str(users)


@pytest.mark.parametrize(
    "given", ["tls and users", "tls and certificates", "trusted", "here", "scram without plain"]
)
def test_strangers_are_kept_out_as_the_refusal_says(
    sparklog_log: Log, tmp_path: Path, given: str
) -> None:
    pem, ca, users = files(tmp_path)
    name = f"localhost:{free_port()}"
    advice = (
        r"set ssl\.keystore\.location=FILE \(a certificate and its key, PEM\) and "
        r"sasl\.users\.location=FILE \(`sparklog kafka-users FILE --add NAME` creates it\), or "
        r"ssl\.client\.auth=required with ssl\.truststore\.location=FILE, or listen on 127\.0\.0\.1"
    )
    with pytest.raises(InvalidRequestError, match=advice):
        Endpoint(sparklog_log, host="0.0.0.0")
    plain = {"sasl.users.location": users, "sasl.enabled.mechanisms": "PLAIN"}
    with pytest.raises(InvalidRequestError, match=r"or remove PLAIN from sasl\.enabled\.mechanism"):
        Endpoint(sparklog_log, host="0.0.0.0", options=plain)
    tls = {"ssl.keystore.location": pem, "advertised.listeners": name}
    options: dict[str, str] = {
        "tls and users": {**tls, **plain},
        "tls and certificates": {**tls, "ssl.client.auth": "required",
                                 "ssl.truststore.location": ca},
        "trusted": {"listener.insecure": "true"},
        "here": {},
        "scram without plain": {"sasl.users.location": users, "listener.insecure": "true"},
    }[given]  # fmt: skip
    with Endpoint(
        sparklog_log, host="127.0.0.1" if given == "here" else "0.0.0.0", options=options
    ) as endpoint:
        assert endpoint.port


def test_options_that_need_others_work_with_them(sparklog_log: Log, tmp_path: Path) -> None:
    pem, ca, users = files(tmp_path)
    certificates = {"ssl.client.auth": "required", "ssl.truststore.location": ca}
    cases = [
        ({"sasl.enabled.mechanisms": "PLAIN"}, "set sasl.users.location=FILE; "
         "`sparklog kafka-users FILE --add NAME` creates it", {"sasl.users.location": users}),
        (certificates, "set ssl.keystore.location=FILE, the endpoint's own certificate "
         r"\(PEM\)", {"ssl.keystore.location": pem}),
        ({"ssl.client.auth": "required", "ssl.keystore.location": pem}, "set "
         "ssl.truststore.location=FILE, the authorities", {"ssl.truststore.location": ca}),
    ]  # fmt: skip
    for given, advice, more in cases:
        with pytest.raises(InvalidRequestError, match=advice):
            Endpoint(sparklog_log, options=given)
        with Endpoint(sparklog_log, options=given | more) as endpoint:
            assert endpoint.port
    with pytest.raises(InvalidRequestError, match="set --ui-certificate=FILE as well"):
        tls_files(None, pem)
    assert tls_files(pem, pem)


def test_a_users_file_is_made_as_its_refusals_say(tmp_path: Path) -> None:
    path = str(tmp_path / "users.json")
    creates = r"`sparklog kafka-users .* --add NAME` creates it"
    with pytest.raises(InvalidRequestError, match=creates):
        read_users(path)
    Path(path).write_text('{"users": []}')
    os.chmod(path, 0o600)
    with pytest.raises(InvalidRequestError, match="`sparklog kafka-users` creates one"):
        read_users(path)
    os.unlink(path)
    assert run(["kafka-users", path, "--add", "a", "--no-password"]) == 0
    assert set(read_users(path)) == {"a"}


def test_an_address_without_a_scheme(sparklog_path: str, capsys: Any) -> None:
    for option in ("--kafka", "--ui"):
        assert run(["serve", sparklog_path, option, "https://localhost:1"]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "leave out https://; whether the connection is encrypted depends on" in said
    assert str(parse_address("localhost:1")) == "localhost:1"


def test_what_clients_are_told_to_do(sparklog_log: Log) -> None:
    with Endpoint(sparklog_log) as endpoint:
        with Wire(endpoint) as wire:
            answer = wire.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"x")
            assert "set security.protocol to PLAINTEXT or SSL" in answer["error_message"]
            answer = wire.ask(Api.DESCRIBE_CLUSTER, 1, endpoint_type=2)
            assert "connect to the broker" in answer["error_message"]
            assert wire.ask(Api.DESCRIBE_CLUSTER, 1, endpoint_type=1)["error_code"] == 0
        to = {"bootstrap.servers": endpoint.bootstrap_servers, "log_level": 0}
        found = AdminClient({**to, "security.protocol": "PLAINTEXT"}).list_topics(timeout=240)
        assert "t" in found.topics
        transactional = confluent_kafka.Producer({**to, "transactional.id": "x"})
        with pytest.raises(confluent_kafka.KafkaException, match=r"leave transactional\.id out"):
            transactional.init_transactions(240)
        producer = confluent_kafka.Producer({**to, "enable.idempotence": True})
        producer.produce("t", value=b"v")
        assert producer.flush(240) == 0
    assert sparklog_log.read("t").read_all().num_rows == 1


def test_options_of_an_endpoint_are_given_where_it_is_started(sparklog_log: Log) -> None:
    change = {"name": "max.connections", "config_operation": 0, "value": "5"}
    resource = {"resource_type": BROKER, "resource_name": "1"}
    with Endpoint(sparklog_log) as endpoint, Wire(endpoint) as wire:
        answer = wire.ask(
            Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[{**resource, "configs": [change]}]
        )
        (refused,) = answer["responses"]
        assert refused["error_code"] == ErrorCode.invalid_request
        assert "give options where it is started" in refused["error_message"]
    with (
        Endpoint(sparklog_log, options={"max.connections": "5"}) as endpoint,
        Wire(endpoint) as wire,
    ):
        asked = [{**resource, "configuration_keys": ["max.connections"]}]
        (told,) = wire.ask(Api.DESCRIBE_CONFIGS, 4, resources=asked)["results"]
        assert [entry["value"] for entry in told["configs"]] == ["5"]


# --- imports, from an endpoint -------------------------------------------------------------------


def test_records_that_are_gone_are_passed_over_if_asked_to(
    sparklog_log: Log, tmp_path: Path, capsys: Any
) -> None:
    to = str(tmp_path / "copy")
    with Endpoint(sparklog_log) as endpoint:
        command = ["import", to, "--topic", "t", "--bootstrap-server", endpoint.bootstrap_servers]
        sparklog_log.append("t", pa.table({"value": [b"0", b"1"]}))
        assert run(command) == 0
        sparklog_log.append("t", pa.table({"value": [b"2", b"3"]}))
        sparklog_log.delete_records("t", {0: 3})
        assert run(command) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert "use --no-fail-on-data-loss to continue without them" in said
        assert run([*command, "--no-fail-on-data-loss"]) == 0
    with sparklog.open(to) as copy:
        assert copy.read("t").read_all()["offset"].to_pylist() == [0, 1, 3]


def test_what_kafka_has_lost_is_imported_to_a_new_topic(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with sparklog.open(old, "rw") as log:
        log.create_topic("t")
        log.append("t", pa.table({"value": [b"0"]}))
    shutil.copytree(old, new)
    with sparklog.open(new, "rw") as log:
        log.append("t", pa.table({"value": [b"1"]}))
        with Endpoint(log) as endpoint, sparklog.open(tmp_path / "copy", "rw") as copy:
            import_topic(copy, "t", KafkaSource(endpoint.bootstrap_servers, "t"))
    with (
        sparklog.open(old) as log,
        Endpoint(log) as endpoint,
        sparklog.open(tmp_path / "copy", "rw") as copy,
    ):
        with pytest.raises(OffsetOutOfRangeError, match="import to a new topic"):
            import_topic(copy, "t", KafkaSource(endpoint.bootstrap_servers, "t"))
        import_topic(copy, "anew", KafkaSource(endpoint.bootstrap_servers, "t"))
        assert copy.read("anew").read_all()["value"].to_pylist() == [b"0"]
        assert copy.read("t").read_all().num_rows == 2


def test_an_import_whose_broker_was_away_is_done_again(
    sparklog_log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with sparklog.open(tmp_path / "copy", "rw") as copy:
        for number in range(2):
            sparklog_log.append("t", pa.table({"value": [b"%d" % number]}))
            with monkeypatch.context() as impatient:
                impatient.setattr(kafka_client, "TIMEOUT_S", 0.3)
                with pytest.raises(StorageUnavailableError, match="do it again to continue"):
                    import_topic(copy, "t", KafkaSource(f"127.0.0.1:{port}", "t"))
            with Endpoint(sparklog_log, port=port):
                import_topic(copy, "t", KafkaSource(f"127.0.0.1:{port}", "t"))
        assert copy.read("t").read_all()["value"].to_pylist() == [b"0", b"1"]


# --- producing -----------------------------------------------------------------------------------


def test_a_writer_and_its_batch_are_given_together(sparklog_log: Log) -> None:
    def lines() -> Records:
        return Records("t", [("file", io.BytesIO(b"a\n"))])

    with pytest.raises(InvalidRequestError, match="pass both, or none of them"):
        produce(sparklog_log, lines(), writer="w")
    produce(sparklog_log, lines(), writer="w", batch=0)
    produce(sparklog_log, lines())
    assert sparklog_log.read("t").read_all().num_rows == 2
