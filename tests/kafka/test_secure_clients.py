"""Other clients by TLS and SASL, producing and consuming: kafka-python, aiokafka, kcat, Java."""

import asyncio
import os
import shutil
import ssl
import subprocess

import pytest
import trustme

from sparklog.kafka import Endpoint
from sparklog.kafka.credentials import SCRAM, ScramCredential
from sparklog.kafka.users import ALL, User, change_users
from tests import jars

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
VALUES = [f"value-{n}".encode() for n in range(20)]
pytestmark = pytest.mark.sparklog(topics={"t": 1})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    home = tmp_path_factory.mktemp("secure")
    authority = trustme.CA()
    made = authority.issue_cert("localhost", "127.0.0.1")
    made.private_key_and_cert_chain_pem.write_to_path(home / "server.pem")
    os.chmod(home / "server.pem", 0o600)
    authority.cert_pem.write_to_path(home / "ca.pem")
    keys = {m: ScramCredential.from_password(m, "s3cret", iterations=4096) for m in SCRAM}
    change_users(str(home / "users.json"), lambda users: users.update(al=User("al", ALL, keys)))
    return home


@pytest.fixture
def endpoint(sparklog_log, files):
    options = {
        "ssl.keystore.location": str(files / "server.pem"),
        "sasl.users.location": str(files / "users.json"),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "advertised.listeners": "", "group.initial.rebalance.delay.ms": 0,
    }
    with Endpoint(sparklog_log, host="localhost", options=options) as found:
        yield found


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(endpoint, files, mechanism):
    kafka = pytest.importorskip("kafka")
    config = {
        "bootstrap_servers": f"localhost:{endpoint.port}", "security_protocol": "SASL_SSL",
        "ssl_cafile": str(files / "ca.pem"), "sasl_mechanism": mechanism,
        "sasl_plain_username": "al", "sasl_plain_password": "s3cret",
    }  # fmt: skip
    producer = kafka.KafkaProducer(**config)
    for value in VALUES:
        producer.send("t", value)
    producer.flush(240)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "t", group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=240_000,
        session_timeout_ms=120_000, **config
    )
    got = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert got == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(endpoint, files, mechanism):
    import aiokafka

    async def run():
        config = {
            "bootstrap_servers": f"localhost:{endpoint.port}", "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(files / "ca.pem")),
            "sasl_mechanism": mechanism, "sasl_plain_username": "al",
            "sasl_plain_password": "s3cret",
        }  # fmt: skip
        async with aiokafka.AIOKafkaProducer(request_timeout_ms=120_000, **config) as producer:
            for value in VALUES:
                await producer.send_and_wait("t", value)
        consumer = aiokafka.AIOKafkaConsumer("t", auto_offset_reset="earliest", **config)
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 240)).value for _ in VALUES]

    assert asyncio.run(run()) == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat(endpoint, files, mechanism):
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat isn't installed: `scripts/program kcat` installs it")
    given = {
        "security.protocol": "SASL_SSL", "ssl.ca.location": str(files / "ca.pem"),
        "sasl.mechanism": mechanism, "sasl.username": "al", "sasl.password": "s3cret",
    }  # fmt: skip
    command = [kcat, "-b", f"localhost:{endpoint.port}", "-t", "t"]
    command += [word for name, value in given.items() for word in ("-X", f"{name}={value}")]
    sent = b"\n".join(VALUES) + b"\n"
    subprocess.run([*command, "-P"], input=sent, check=True, timeout=240)
    command += ["-C", "-e", "-q"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=240)
    assert done.stdout == sent


@pytest.mark.kafka
@pytest.mark.deep
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java(endpoint, files, mechanism, tmp_path):
    try:
        command = [jars.java(), "-cp", jars.kafka_jars()]
    except jars.Unavailable as reason:
        pytest.skip(str(reason))
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={files / 'ca.pem'}\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
        'username="al" password="s3cret";\n'
    )
    shared = ["--bootstrap-server", f"localhost:{endpoint.port}", "--topic", "t"]
    config = str(tmp_path / "client.properties")
    sent = b"\n".join(VALUES) + b"\n"
    subprocess.run(
        [*command, "org.apache.kafka.tools.ConsoleProducer", *shared, "--producer.config", config,
         "--request-timeout-ms", "100000"],  # its own is 1500
        input=sent, check=True, timeout=240, capture_output=True,
    )  # fmt: skip
    done = subprocess.run(
        [*command, "org.apache.kafka.tools.consumer.ConsoleConsumer", *shared,
         "--consumer.config", config, "--from-beginning", "--max-messages", str(len(VALUES)),
         "--timeout-ms", "120000"],
        check=True, timeout=240, capture_output=True,
    )  # fmt: skip
    assert done.stdout == sent
