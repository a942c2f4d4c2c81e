"""Spark's Python worker daemon with what workers import imported already, and kept from the GC.

A worker is a fork of the daemon. Importing pandas and pyarrow again in each, and walking through
them at the end of each task (the stock daemon collects garbage there), costs 30 ms a micro-batch.
Spark starts it by `spark.python.daemon.module`.
"""

import contextlib
import gc
import importlib

from pyspark import daemon

_PRELOADED = ("pyspark.worker", "pandas", "pyarrow", "sparklog.sink.task", "sparklog.source.batch")


def main() -> None:
    """Run the daemon."""
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):  # the worker that needs it says so
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
