"""The pytest plugin, in test runs of its own within this one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from types import ModuleType

# Once a process, also while a run of pytester is under way.
import aiokafka  # noqa: F401
import numpy  # noqa: F401
import pytest

from tests.paths import ROOT

pytest_plugins = ["pytester"]
PLUGIN = ("-p", "pytest_sparklog", "-p", "no:cacheprovider")


class Imported:
    """What such a run imports stays imported, which pytester would forget.

    Else the next import makes a second copy of it, whose classes are not those that others hold.
    """

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}

    def pytest_unconfigure(self) -> None:
        self._modules = dict(sys.modules)

    def keep(self, but: Path) -> None:
        """Keep all but the modules of this directory."""
        for name, module in self._modules.items():
            if not str(getattr(module, "__file__", None)).startswith(str(but)):
                sys.modules.setdefault(name, module)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run the tests in a text, with this plugin and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(text: str, *args: str) -> pytest.RunResult:
        head = "import pyarrow as pa\nimport pytest\nimport sparklog\n"
        pytester.makepyfile(head + textwrap.dedent(text))
        imported = Imported()
        options = *PLUGIN, "--strict-markers", "-W", "error", *args
        done = pytester.runpytest_inprocess(*options, plugins=[imported])
        imported.keep(but=pytester.path)
        return done

    return run


def test_pytest_finds_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (module,) = project["project"]["entry-points"]["pytest11"].values()
    assert module in project["tool"]["setuptools"]["py-modules"]
    assert (ROOT / f"{module}.py").is_file()


def test_two_lines(run) -> None:
    """As the README and docs/testing.md have it."""
    run(
        """
        @pytest.mark.sparklog(topics="flights")
        def test_plain_python(sparklog_log):
            sparklog_log.append("flights", pa.table({"value": ["one"]}))
            assert sparklog_log.read("flights").read_all()["value"].to_pylist() == [b"one"]

        def test_starts_empty(sparklog_log, sparklog_path):
            assert (sparklog_log.topics(), sparklog_log.path) == ({}, sparklog_path)
        """
    ).assert_outcomes(passed=2)


def test_topics_and_options(run) -> None:
    run(
        """
        pytestmark = pytest.mark.sparklog(topics=["a", "b"], options={"segment.bytes": 1 << 20})

        @pytest.mark.sparklog(
            topics={"b": {"partitions": 3, "cleanup.policy": "compact"}, "c": 2},
            options={"retention.ms": 7},
        )
        def test_it(sparklog_log):
            found = sparklog_log.topics()
            assert {name: len(topic.dirs) for name, topic in found.items()} == {
                "a": 1, "b": 3, "c": 2
            }
            assert found["b"].config.cleanup_policy == ("compact",)
            assert {topic.config.segment_bytes for topic in found.values()} == {1 << 20}
            assert {topic.config.retention_ms for topic in found.values()} == {7}
        """
    ).assert_outcomes(passed=1)


def test_it_is_closed_at_the_end(run, pytester: pytest.Pytester) -> None:
    run(
        """
        @pytest.mark.sparklog(topics=["t"])
        def test_it(sparklog_log):
            sparklog_log.append("t", pa.table({"value": ["one"]}))
            raise KeyError
        """,
        f"--basetemp={pytester.path / 'kept'}",
    ).assert_outcomes(failed=1)
    log = pytester.path / "kept" / "test_it0" / "sparklog"
    assert (log / "t-0").is_dir()
    assert (log / ".kafka_cleanshutdown").exists()


def test_the_clock(run) -> None:
    run(
        """
        from sparklog.service import Service

        @pytest.mark.sparklog(topics={"t": {"retention.ms": 1000, "segment.idle.ms": 1000}})
        def test_it(sparklog_log, sparklog_clock):
            sparklog_log.append("t", pa.table({"value": ["one"]}))
            (time,) = sparklog_log.read("t").read_all()["timestamp"].to_pylist()
            assert int(time.timestamp() * 1000) == sparklog_clock()
            sparklog_clock.advance(2000)
            with Service(sparklog_log.path, clock=sparklog_clock) as service:
                service.run_once()  # only announces the topic's first deletion
                service.run_once()
            assert sparklog_log.offsets("t") == {0: (1, 1)}
        """
    ).assert_outcomes(passed=1)


def test_kafka_clients(run) -> None:
    """One writes, one reads; a topic that nobody made is there when it is asked for."""
    run(
        """
        import time
        from confluent_kafka import Consumer, Producer

        @pytest.mark.sparklog(topics={"flights": 2}, kafka={"num.partitions": 3})
        def test_it(sparklog_kafka, sparklog_log):
            assert sparklog_kafka == f"127.0.0.1:{sparklog_kafka.endpoint.port}"
            assert sparklog_kafka.log is sparklog_log
            producer = Producer({"bootstrap.servers": sparklog_kafka})
            producer.produce("flights", b"on time", b"UA4", partition=1)
            producer.produce("alerts", b"late")
            assert producer.flush(240) == 0
            assert sparklog_log.read("flights").read_all()["value"].to_pylist() == [b"on time"]
            assert len(sparklog_log.offsets("alerts")) == 3
            sparklog_log.append("flights", pa.table({"value": ["late"]}), partition=0)
            consumer = Consumer({
                "bootstrap.servers": sparklog_kafka, "group.id": "g",
                "auto.offset.reset": "earliest",
            })
            consumer.subscribe(["flights"])
            values = sorted(consumer.poll(60).value() for _ in range(2))
            consumer.close()
            assert values == [b"late", b"on time"]
            assert {row["group"] for row in sparklog_log.readers().to_pylist()} == {"g"}

        @pytest.mark.sparklog(kafka={"auto.create.topics.enable": False})
        def test_like_a_careful_broker(sparklog_kafka):
            admin = Consumer({"bootstrap.servers": sparklog_kafka, "group.id": "g"})
            assert admin.list_topics("none", timeout=240).topics["none"].error is not None
            admin.close()
        """
    ).assert_outcomes(passed=2)


def test_kafka_ends_without_waiting(run) -> None:
    """A consumer that waits in a fetch, and one that is never closed, hold nobody up."""
    run(
        """
        import time
        from confluent_kafka import Consumer, TopicPartition
        ENDED = []

        @pytest.mark.sparklog(topics=["t"])
        def test_it(sparklog_kafka, request):
            consumer = Consumer({
                "bootstrap.servers": sparklog_kafka, "group.id": "g",
                "fetch.wait.max.ms": 300_000, "socket.timeout.ms": 300_000, "log_level": 0,
            })
            consumer.assign([TopicPartition("t", 0, 0)])
            assert consumer.poll(0.3) is None
            ENDED.extend([consumer, time.monotonic()])

        def test_it_took_no_time():
            consumer, since = ENDED
            assert time.monotonic() - since < 200
            consumer.close()
        """
    ).assert_outcomes(passed=2)


def test_kafka_is_ready_in_no_time(run) -> None:
    """The processor's time, for others work here too; the first one imports what it needs."""
    run(
        """
        import time

        TAKEN = []

        @pytest.fixture
        def before(sparklog_log):
            TAKEN.append(time.process_time())

        @pytest.mark.parametrize("n", range(5))
        def test_it(n, before, sparklog_kafka):
            TAKEN[-1] = time.process_time() - TAKEN[-1]

        def test_that():
            assert sorted(TAKEN[1:])[0] < 0.2, TAKEN
        """
    ).assert_outcomes(passed=6)


def test_kafka_under_asyncio(run) -> None:
    """A client in the test's own loop, which is not the endpoint's."""
    run(
        """
        import asyncio
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        @pytest.mark.sparklog(topics="t")
        def test_it(sparklog_kafka):
            async def both():
                async with AIOKafkaProducer(bootstrap_servers=sparklog_kafka) as producer:
                    await producer.send_and_wait("t", b"one")
                consumer = AIOKafkaConsumer(
                    "t", bootstrap_servers=sparklog_kafka, auto_offset_reset="earliest"
                )
                async with consumer:
                    return (await asyncio.wait_for(consumer.getone(), 240)).value

            assert asyncio.run(both()) == b"one"
        """
    ).assert_outcomes(passed=1)


@pytest.mark.deep
def test_the_example_without_kafka(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for file in (ROOT / "examples" / "tests_without_kafka").glob("*.py"):
        shutil.copy(file, pytester.path)
    pytester.runpytest_inprocess(*PLUGIN, "-W", "error").assert_outcomes(passed=3)


@pytest.mark.parametrize("marker", ["'t'", "topic='t'"])
def test_a_wrong_marker_is_told(run, marker: str) -> None:
    result = run(
        f"""
        @pytest.mark.sparklog({marker})
        def test_it(sparklog_log):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*must be pytest.mark.sparklog(topics=..., options=..., kafka=...)*"]
    )


@pytest.mark.parametrize("topics", ["3", "{'t': 'three'}", "{'t': None}", "[1]"])
def test_wrong_topics_are_told(run, topics: str) -> None:
    result = run(
        f"""
        @pytest.mark.sparklog(topics={topics})
        def test_it(sparklog_log):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    shown = topics.replace("[", "[[]")
    result.stdout.fnmatch_lines([f"*::test_it: topics={shown}: expected a name*"])


@pytest.mark.deep
def test_what_the_docs_say(run) -> None:
    """docs/testing.md, all of its Python; with a file system and a store that are there."""
    text = (ROOT / "docs" / "testing.md").read_text()
    code = "\n\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    for there, here in {
        "MyFileSystem()": "LocalFileSystem()",
        "myfs://bucket/prefix": "memory://docs/prefix",
        '{"key": "..."}': "{}",
        "part_bytes = 5 << 20": "part_bytes = 1000",
    }.items():
        assert there in code
        code = code.replace(there, here)
    code = f"from sparklog.fs import LocalFileSystem\n{code}"
    result = run(code, "-k", "not (test_a_pipeline or test_a_spark_pipeline or TestMyStore)")
    assert not {"failed", "errors"} & result.parseoutcomes().keys()
    assert result.parseoutcomes()["passed"] > 24
    run(code, "-k", "TestMyStore and test_put_and_get").assert_outcomes(passed=1)


def test_without_pyspark(run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    done = run("def test_it(sparklog_spark): pass")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*isn't installed here; run: pip install 'sparklog[[]spark]'"])


def test_who_does_not_use_it_pays_nothing(tmp_path: Path) -> None:
    dear = {"sparklog", "pyarrow", "numpy", "pyspark", "hypothesis"}
    code = (
        f"import sys, pytest; pytest.main(['--collect-only', '-q', *{PLUGIN!r}]); "
        f"print('pytest_sparklog' in sys.modules, {dear!r} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "True set()"
