"""Closes services when the interpreter exits, and detects the end of the Spark session."""

import atexit
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Closable(Protocol):
    """An object with a `close` method."""

    def close(self) -> None: ...


def spark_session_check() -> Callable[[], bool]:
    """Return a function that returns True while the present Spark session is active.

    Does not import Spark: if it is not loaded, there is no session to wait for.
    """
    pyspark = sys.modules.get("pyspark")
    context: Any = getattr(pyspark, "SparkContext", None)
    active = getattr(context, "_active_spark_context", None)
    if active is None:
        return lambda: True
    return lambda: getattr(context, "_active_spark_context", None) is active


_started: "weakref.WeakSet[Closable]" = weakref.WeakSet()


def close_at_exit(service: Closable) -> None:
    """Close `service` when the interpreter exits, unless it is cancelled before."""
    _started.add(service)


def cancel_close_at_exit(service: Closable) -> None:
    """Forget a service that was closed. Idempotent."""
    _started.discard(service)


@atexit.register
def _close_all() -> None:
    for service in list(_started):
        service.close()
