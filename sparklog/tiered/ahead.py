"""A few threads that fetch what a sequential reader will want next."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sparklog.errors import SparklogError

_LOGGER: Final = logging.getLogger(__name__)


class Ahead:
    """Runs loads in the background, `threads` at a time. Their results are the cache's."""

    def __init__(self, threads: int) -> None:
        self._threads, self._pid = threads, os.getpid()
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, load: Callable[[], object]) -> None:
        """Have `load` run soon. What goes wrong shows when a reader asks for the same itself."""
        if self._pool is None or self._pid != os.getpid():  # a forked child has no threads
            self._pool, self._pid = ThreadPoolExecutor(self._threads, "sparklog-ahead"), os.getpid()
        self._pool.submit(_quietly, load)


def _quietly(load: Callable[[], object]) -> None:
    try:
        load()
    except (SparklogError, OSError) as error:
        _LOGGER.debug("not fetched ahead: %s", error)
