"""Waiting no longer than somebody who looks at a log wants to."""

import threading
from collections.abc import Callable
from typing import TypeVar

from sparklog.errors import StorageUnavailableError
from sparklog.service.health.formatting import duration_text

T = TypeVar("T")


def call_with_timeout(call: Callable[[], T], timeout_ms: float, what: str) -> T:
    """Return what `call` returns, or raise what it raises, within `timeout_ms`.

    Else StorageUnavailableError, and `call` goes on by itself in a daemon thread: a request to a
    host that drops packets can't be broken off.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - for the one who waits
            errors.append(error)

    thread = threading.Thread(target=run, name="sparklog-health", daemon=True)
    thread.start()
    thread.join(timeout_ms / 1000)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    raise StorageUnavailableError(
        f"{what} gave no answer within {duration_text(timeout_ms)}: is the store running, and does "
        "network reach it?"
    )
