"""The error of a task in a Python worker that can't import sparklog.

Spark sends objects of this package to executors, and the Python of an executor may have no sparklog
or another version. `load` is pickled by value, so that it runs there nevertheless and names the
host.
"""

import sys
from typing import Any


def load(pickled: bytes, version: str) -> Any:
    """Unpickle an object that `reduced` describes.

    The function must not use names of this module or package, which the worker may not have.

    Args:
        pickled: The pickled parts of the object.
        version: The version of the driver's sparklog.

    Raises:
        ImportError: This Python can't load the object's class.
    """
    import os
    import pickle
    import socket
    import sys

    try:
        function, arguments, state = pickle.loads(pickled)  # noqa: S301 - our own
    except (ImportError, AttributeError) as error:
        os.environ["SPARK_HIDE_TRACEBACK"] = "true"  # see spark_errors.py
        raise ImportError(
            f"Spark's Python worker on host {socket.gethostname()} runs {sys.executable}, which "
            f"can't load sparklog {version}: {error}. Install that version of sparklog for this "
            "Python on every host of the cluster, set PYSPARK_PYTHON to a Python that has it on "
            "every host, or ship the package with --py-files or addPyFile and call "
            "sparklog.register(spark) again"
        ) from None
    found = function(*arguments)
    if state:
        found.__dict__.update(state)
    return found


def reduced(function: Any, arguments: tuple[Any, ...], state: Any = None) -> tuple[Any, ...]:
    """Return the value of a `__reduce__` with which `load` restores the object.

    Cost: about 1 KiB and 0.1 ms per object.
    """
    import pyspark

    cloudpickle: Any = pyspark.cloudpickle
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    version = sys.modules[__name__.partition(".")[0]].__version__
    return load, (cloudpickle.dumps((function, arguments, state)), version)


def reduce_ex(self: Any, _: Any) -> tuple[Any, ...]:
    """The `__reduce_ex__` of classes with objects that Spark sends to executors."""
    parts: Any = object.__reduce_ex__(self, 2)
    return reduced(*parts[:3])
