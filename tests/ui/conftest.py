"""What the tests of reports share: a log with a bit of everything, its report, a browser."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.testing.faultstore import FaultStore
from sparklog.ui.report.build import make_report
from sparklog.ui.report.model import LogReport
from tests import browser as browsers
from tests.ui.demo import make_demo


@dataclass(frozen=True)
class Demo:
    """The log, when it is looked at, the bucket with its copies."""

    path: str
    now_ms: int
    store: FaultStore

    def report(self) -> LogReport:
        return make_report(self.path, clock=ManualClock(self.now_ms))


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Nobody changes it."""
    path: Path = tmp_path_factory.mktemp("demo") / "log"
    clock, store = make_demo(path, days=1)
    return Demo(str(path), clock(), store)


@pytest.fixture(scope="session")
def demo_report(demo: Demo) -> LogReport:
    return demo.report()


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Skips where there is none. While it is open, `asyncio.run` is refused in its thread."""
    try:
        with browsers.started() as found:
            yield found
    except browsers.Unavailable as reason:
        pytest.skip(f"browser: {reason}")
