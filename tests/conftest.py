"""Fixtures that several parts of the suite share."""

import gc
import logging
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from sparklog.clock import ManualClock
from sparklog.log import read_retry
from sparklog.testing.faultstore import FaultStore
from tests import depth, jars
from tests.oracle import Oracle
from tests.tiered.s3 import S3Server, Unavailable, started

# Timings of a busy machine are no failures; a failing example is printed and can be replayed. CI
# judges a change by the same examples each time, as it does by the same crash seeds; whoever works
# on the code, and the night's run, draw new ones.
settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow],
    max_examples=depth.EXAMPLES, derandomize=depth.DEPTH == "ci",
)  # fmt: skip
settings.load_profile("default")


# With `--dist loadgroup` a worker takes group after group, in the order of the tests. The long ones
# come first; what can be dealt out test by test comes last, so that no worker idles at the end.
FIRST = (
    "tests/test_other_sparks.py", "tests/spark/test_applications.py",
    "tests/spark/test_connect.py", "tests/spark/", "tests/state/", "tests/kafka/",
    "tests/service/", "tests/oracle/", "tests/tiered/",
)  # fmt: skip
SPREAD = (
    "tests/spark/test_applications.py", "tests/crash/test_every_cut.py",
    "tests/crash/test_tiering_seeds.py", "tests/crash/test_seeds.py",
)  # fmt: skip
_MEMORY = "/dev/shm"
_MEMORY_MIN_BYTES = 4 << 30  # some hundred MB are used; a container often has 64 MB there
# A Spark session and its warm JVM for all that isn't spread; a broker, an endpoint and a JVM.
ONE_SESSION = "tests/spark/", "tests/state/", "tests/kafka/clients/"


def pytest_configure() -> None:
    """Ctrl-C works as in a shell where the suite runs in the background, whose jobs ignore it.

    The small suite's files lie in memory, where a sync costs nothing: what a disk adds to that, its
    file system's own ways, is for the other depths.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if depth.IN_MEMORY and _has_room(_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)  # pytest's word for it


def _has_room(directory: str) -> bool:
    return (
        os.access(directory, os.W_OK) and shutil.disk_usage(directory).free > _MEMORY_MIN_BYTES
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for another depth, unless `-m` speaks of it; sort the rest."""
    asked = set(re.findall(r"\w+", config.option.markexpr))
    out = depth.LEFT_OUT if not asked & {"deep", "slow"} else set[str]()
    left = {item for item in items if any(item.get_closest_marker(mark) for mark in out)}
    if out:
        names = depth.LEFT_OUT_BY_NAME
        left |= {item for item in items if names and item.nodeid.startswith(names)}
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]

    def rank(item: pytest.Item) -> int:
        for place, prefix in enumerate(FIRST):
            if item.nodeid.startswith(prefix):
                return place
        return len(FIRST) + item.nodeid.startswith(SPREAD)

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """What is loaded by now stays; the collector needn't look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(optionalhook=True)  # there may be no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out tests by `group`. xdist's own groups have no effect under pytest 9.2: it marks the
    tests by an attribute that is gone."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False  # it would put the long tests last
    return Groups(config, log)


def group(nodeid: str) -> str:
    """What stays together, for it shares a Spark session, a broker, a server or a JVM."""
    file = nodeid.partition("::")[0]
    if file in SPREAD:
        return nodeid
    return next((folder for folder in ONE_SESSION if nodeid.startswith(folder)), file)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kafka's own storage code; skips where no JDK is, or Maven can't bring the jars."""
    with jars.or_skip("oracle"):
        judge = Oracle()
    yield judge
    judge.close()


@pytest.fixture(scope="session")
def kafka_connector_jars() -> list[str]:
    """The jars of Spark's Kafka connector, for `spark.jars`; skips where Maven can't bring them."""
    with jars.or_skip("Kafka connector"):
        found = jars.connector_jars()
    return found


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test turns."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> FaultStore:
    """An object store in memory that fails as often as a test asks."""
    return FaultStore(clock=clock)


@pytest.fixture(autouse=True)
def same_logging() -> Iterator[None]:
    """Loggers as the process started with them, for each test and after it.

    A command sets up logging for its process, also in a fixture that lives longer than a test, or
    in a thread that ends late; this process has other tests to run.
    """
    _reset_logging()
    yield
    _reset_logging()


_FORMATTERS: dict[logging.Handler, logging.Formatter | None] = {}
_HANDLERS = {name: logging.getLogger(name).handlers[:] for name in ("", "sparklog")}


def _reset_logging() -> None:
    logging.disable(logging.NOTSET)
    logging.root.setLevel(logging.WARNING)
    ours = [n for n in list(logging.root.manager.loggerDict) if n.partition(".")[0] == "sparklog"]
    for name in ours:
        logger = logging.getLogger(name)
        logger.setLevel(logging.NOTSET)
        logger.propagate, logger.disabled = True, False
    for name in ["", *ours]:
        logger = logging.getLogger(name)
        for handler in logger.handlers[:]:
            if _is_pytests(handler):
                # Or what PySpark's loggers set, in JSON, is the form of all later tests.
                handler.setFormatter(_FORMATTERS.setdefault(handler, handler.formatter))
            elif handler not in _HANDLERS.get(name, ()):
                logger.removeHandler(handler)
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and type(logger).__module__.startswith("pyspark."):
            logger.propagate = True  # or pytest gives such a logger its handlers
            for handler in filter(_is_pytests, logger.handlers[:]):
                logger.removeHandler(handler)


def _is_pytests(handler: logging.Handler) -> bool:
    return type(handler).__module__.startswith("_pytest.")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage is told at once, not after a second in which segments might have moved.

    For tests in which nothing moves them.
    """
    monkeypatch.setattr(read_retry, "RETRY_MS", 10)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no right to mount")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The S3 server that the tests of a worker share; one that stops it starts it again.

    Skips where there is none.
    """
    try:
        server = started(tmp_path_factory.mktemp("s3"))
    except Unavailable as reason:
        pytest.skip(f"S3: {reason}")
    yield server
    server.kill()
