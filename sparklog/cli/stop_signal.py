"""SIGTERM and SIGINT as an event, for commands that stop between two steps."""

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_LOGGER = logging.getLogger(__name__)


@contextlib.contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set. A second signal ends the process at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, _: FrameType | None) -> None:
        _LOGGER.info("%s: stopping", signal.Signals(number).name)
        stop.set()
        for known, handler in before.items():
            signal.signal(known, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
