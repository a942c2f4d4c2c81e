"""Calls with a timeout, so that a store that does not answer cannot block a health check."""

import threading
from collections.abc import Callable
from typing import TypeVar

from sparklog.errors import StorageUnavailableError
from sparklog.service.health.formatting import duration_text

T = TypeVar("T")


def call_with_timeout(call: Callable[[], T], timeout_ms: float, what: str) -> T:
    """Return the result of `call`, or raise its exception.

    A call that takes longer than `timeout_ms` continues in a daemon thread, because a request to a
    host that drops packets cannot be cancelled.

    Raises: StorageUnavailableError: `call` took longer than `timeout_ms`. `what` is the subject of
        the message.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - raised by the waiting thread
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
