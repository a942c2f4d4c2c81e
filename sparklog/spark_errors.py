"""Raise sparklog's errors so that Spark shows the message before the traceback.

Spark prints the traceback of a Python worker before the text of the error. Users do not need the
traceback of an error that sparklog raises deliberately (sparklog.errors), because the text contains
the advice. The methods that Spark calls therefore raise such an error without its chain and its
inner frames. All other errors have the complete traceback. The logger `sparklog.spark` logs the
omitted traceback at DEBUG.
"""

import copy
import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final, TypeVar, cast

from sparklog.errors import SparklogError
from sparklog.worker_package import reduce_ex

_Class = TypeVar("_Class")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Cause = Callable[[SparklogError], SparklogError | None]
_LOGGER: Final = logging.getLogger("sparklog.spark")
_HIDE: Final = "SPARK_HIDE_TRACEBACK"  # Source: pyspark.util.handle_worker_exception
_SPECIAL: Final = ("__call__", "__reduce__")
_LAST_FRAME: Final = re.compile(r'  File "(.+)", line (\d+), in .+\n(?:    .*\n)*(\S.*)')


def brief(error: Exception) -> str:
    """Return what failed, in one line, from an error of Spark or of a function that Spark calls.

    Spark's messages continue with plans and stack traces. If the error is one of a function in a
    Python worker, its message is preceded by the worker's traceback: then the line has the
    function's own error, with the file and the line.
    """
    java = getattr(error, "java_exception", None)  # of an error that Spark does not convert
    text = (str(error) if java is None else str(java.toString())).strip()
    frames = _LAST_FRAME.findall(text)
    if frames:
        file, line, message = frames[-1]
        return f"{message} ({file}, line {line})"
    return text.partition("\n")[0]


def in_worker(cls: type[_Class]) -> type[_Class]:
    """Decorate a class that Spark calls in Python workers: a reader, a writer, a task.

    Wraps the public methods, `__call__` and `__reduce__`. A worker process ends after an error, so
    the environment variable by which Spark omits its own frames applies to this error only. A
    worker that can't load the class, because it has no sparklog, names its host
    (worker_package.py).
    """
    for name, value in list(vars(cls).items()):
        is_called = name in _SPECIAL or not name.startswith("_")
        if is_called and isinstance(value, FunctionType):
            setattr(cls, name, _wrapped(value, _for_worker))
    if cls.__reduce__ is object.__reduce__:
        cls.__reduce_ex__ = reduce_ex  # type: ignore[method-assign]
    return cls


def in_driver(function: _Function) -> _Function:
    """Decorate a function that Spark calls in the driver process, such as foreachBatch's.

    Py4J prints the cause of an error before Py4J's own stack frames. So a copy of the function's
    error becomes the cause of the error, and the user reads the message first.
    """
    return _wrapped(function, _for_driver)


def _for_worker(error: SparklogError) -> None:
    if _is_worker():
        os.environ[_HIDE] = "true"


def _for_driver(error: SparklogError) -> SparklogError:
    return copy.copy(error)


def _is_worker() -> bool:
    """Return whether this process runs pyspark's daemon, or a worker module without the daemon."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def _wrapped(function: _Function, cause: _Cause) -> _Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except SparklogError as error:
            raise _alone(error) from cause(error)
        return _iterated(result, cause) if isinstance(result, Iterator) else result

    return cast(_Function, call)


def _iterated(values: Iterator[Any], cause: _Cause) -> Iterator[Any]:
    try:
        yield from values
    except SparklogError as error:
        raise _alone(error) from cause(error)


def _alone(error: SparklogError) -> SparklogError:
    """Log the error's traceback, and return the error without chain and frames."""
    _LOGGER.debug("%s", type(error).__name__, exc_info=error)
    error.__cause__ = error.__context__ = None  # Python would print both before the message
    return error.with_traceback(None)
