"""Stops the service when Spark or Python exits."""

import atexit
import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Closable(Protocol):
    """What ends by `close`."""

    def close(self) -> None: ...


def spark_session_check() -> Callable[[], bool]:
    """Whether the Spark session that is active now still is. Spark is not imported for this."""
    pyspark = sys.modules.get("pyspark")
    context: Any = getattr(pyspark, "SparkContext", None)
    active = getattr(context, "_active_spark_context", None)
    if active is None:
        return lambda: True
    return lambda: getattr(context, "_active_spark_context", None) is active


_started: "weakref.WeakSet[Closable]" = weakref.WeakSet()


def close_at_exit(service: Closable) -> None:
    """Close it when the interpreter ends, unless it is forgotten by then."""
    _started.add(service)


def cancel_close_at_exit(service: Closable) -> None:
    """It is closed. Idempotent."""
    _started.discard(service)


@atexit.register
def _close_all() -> None:
    for service in list(_started):
        service.close()
