"""What a Python worker of Spark has: pickled by value, because the worker may have no sparklog."""

from collections.abc import Iterator
from typing import Any, Final

COLUMNS: Final = "host string, python string, version string, sparklog string, kernel string"


def probe(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield a row with what this worker has, for `DataFrame.mapInArrow`.

    The function must not use other names of this package, which the worker may not have.
    """
    import importlib
    import platform
    import socket
    import sys

    import pyarrow as pa

    for _ in batches:
        pass
    try:
        version = importlib.import_module("sparklog").__version__
        compiled = importlib.import_module("sparklog.format.kernel").COMPILED
        built = "compiled" if compiled else "interpreted"
    except ImportError as error:
        version, built = "", str(error)
    row = {
        "host": socket.gethostname(), "python": sys.executable,
        "version": platform.python_version(), "sparklog": version, "kernel": built,
    }  # fmt: skip
    yield pa.RecordBatch.from_pylist([row])
