"""Functions of the user, which commands import and call: MODULE:FUNCTION."""

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, Final

import click

from sparklog.spark_errors import brief

_LOGGER: Final = logging.getLogger(__name__)


def load_function(path: str, option: str) -> Callable[..., Any]:
    """Return a function of a module, which is searched for in the current directory, too.

    If the function fails, the returned function raises click.ClickException with the place and the
    error, because a traceback through sparklog and Spark hides them.

    Args:
        path: MODULE:FUNCTION.
        option: The option that names the function, for messages.

    Raises:
        click.BadParameter: `path` has another form, or the module or the function can't be loaded.
    """
    module_name, colon, name = path.partition(":")
    hint = f"'{option}'"
    if not colon or not module_name or not name:
        raise click.BadParameter(f"{path!r} must have the form MODULE:FUNCTION", param_hint=hint)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, name)
    except (ImportError, AttributeError) as error:
        raise click.BadParameter(f"{path} can't be loaded: {error}", param_hint=hint) from None
    except Exception as error:
        raise click.BadParameter(
            f"{path} can't be loaded: {_described(error)}", param_hint=hint
        ) from error
    if not callable(function):
        raise click.BadParameter(f"{path} is no function", param_hint=hint)
    return _reporting(path, function, module)


def _reporting(path: str, function: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            _LOGGER.info("%s failed", path, exc_info=True)
            frames = traceback.extract_tb(error.__traceback__)[1:]
            own = [frame for frame in frames if frame.filename == module.__file__] or frames[:1]
            place = f" in {own[-1].filename}, line {own[-1].lineno}" if own else ""
            raise click.ClickException(f"{path} failed{place}: {_described(error)}") from error

    return call


def _described(error: Exception) -> str:
    text = brief(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
