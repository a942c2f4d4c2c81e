"""`sparklog serve --kafka`: by its command, as a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

import sparklog
from sparklog.cli.app import run
from sparklog.clock import ManualClock
from sparklog.service import Service
from tests.tiered.logs import filled, value
from tests.waiting import until


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """`sparklog serve`, for as long as this lasts; gives the bootstrap.servers."""
    command = [sys.executable, "-m", "sparklog.cli", "serve", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["kafka"]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(240) == 0
            assert json.loads(process.stdout.readline())["event"] == "stopped"


@pytest.mark.parametrize("more", [(), pytest.param(("--read-only",), marks=pytest.mark.deep)])
def test_clients_are_served_until_it_is_stopped(tmp_path: Path, more: tuple[str, ...]) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("flights", 2)
    with serving(path, "--kafka", "0", *more) as servers:
        found = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=240)
        assert len(found.topics["flights"].partitions) == 2


def test_an_archive_is_served_read_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, clock = f"file://{tmp_path}/copies", ManualClock()
    (tmp_path / "copies").mkdir()
    with filled(tmp_path / "log", clock, 6):
        Service(tmp_path / "log", remote=url, clock=clock).run_once()
    assert run(["serve", url, "--kafka", "0"]) == 2
    advice = "`sparklog serve URL --kafka PORT --read-only`"
    assert advice in " ".join(capsys.readouterr().err.split())
    with serving(url, "--kafka", "0", "--read-only") as servers:
        consumer = Consumer(
            {
                "bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )  # fmt: skip
        with contextlib.closing(consumer):
            consumer.assign([TopicPartition("t", 0, 0)])
            message = consumer.poll(240)
            assert message is not None
            assert (message.error(), message.value()) == (None, value(0))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kafka", "nowhere"], "use PORT or HOST:PORT"),
        (["--kafka", "0", "--kafka-option", "node.id=x"], "node.id=x: expected"),
        (["--kafka-option", "node.id=2"], "requires --kafka"),
        (["--read-only"], "requires --kafka or --ui"),
        (["--kafka", "0", "--once"], "leave out --once"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    path = str(tmp_path / "log")
    sparklog.open(path, "rw").close()
    assert run(["serve", path, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_no_log_is_made_where_none_is(tmp_path: Path) -> None:
    path = tmp_path / "nope"
    path.mkdir()
    assert run(["serve", str(path), "--kafka", "0", "--read-only"]) == 2
    assert list(path.iterdir()) == []


@pytest.mark.deep
def test_a_log_that_is_made_again_is_served_at_the_same_address(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("before")
    with serving(path, "--kafka", "0", "--option", "log.initial.task.delay.ms=600000") as servers:
        client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        assert set(client.list_topics(timeout=240).topics) == {"before"}
        os.rename(path, f"{path}-gone")  # at once: what is half gone is refused in other words
        said = ""

        def looked_in_vain() -> bool:
            nonlocal said
            said += capfd.readouterr().err
            return "can't be served to Kafka clients; the endpoint tries again" in said

        until(looked_in_vain)
        time.sleep(3)  # some more looks at what isn't there say nothing
        with sparklog.open(f"{path}-new", "rw") as log:
            log.create_topic("after")
        os.rename(f"{path}-new", path)  # as is what is half made

        def is_served() -> bool:
            with contextlib.suppress(KafkaException):
                return set(client.list_topics(timeout=1).topics) == {"after"}
            return False

        until(is_served, "the new log")
    said += capfd.readouterr().err
    assert said.count("can't be served to Kafka clients; the endpoint tries again") == 1, said
    assert said.count("is served to Kafka clients again") == 1


@pytest.mark.parametrize(("arguments", "code"), [(["--once"], 0), (["--kafka", "0"], 2)])
def test_without_the_extra_only_kafka_is_refused(
    tmp_path: Path, arguments: list[str], code: int
) -> None:
    path = str(tmp_path / "log")
    sparklog.open(path, "rw").close()
    program = (
        "import sys; sys.modules['kio'] = None\n"
        "from sparklog.cli.app import run\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "serve", path, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stderr
    assert ("pip install 'sparklog[endpoint]'" in done.stderr) == bool(code)
