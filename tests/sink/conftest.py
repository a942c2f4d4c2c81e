"""What sinks keep in their process ends with the test."""

import signal
from collections.abc import Iterator

import pytest

from sparklog.sink import open_logs


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    """Logs that were lent are closed now, not in two seconds, and signals are as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    if open_logs._timer is not None:
        open_logs._timer.cancel()
        open_logs._timer.join()
    open_logs._at_exit()
    for number, handler in before.items():
        signal.signal(number, handler)
