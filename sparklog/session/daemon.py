"""Spark's Python worker daemon with preloaded modules, which are frozen for the GC.

A worker is a fork of the daemon. Without the daemon, each worker imports pandas and pyarrow again,
and garbage collection at the end of each task visits their objects, which costs 30 ms per
micro-batch. Spark starts the daemon by `spark.python.daemon.module`.
"""

import contextlib
import gc
import importlib

from pyspark import daemon

_PRELOADED = ("pyspark.worker", "pandas", "pyarrow", "sparklog.sink.task", "sparklog.source.batch")


def main() -> None:
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):  # a worker that needs the module reports this
            importlib.import_module(name)
    gc.collect()  # before freezing, or the garbage of the imports would stay forever
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
