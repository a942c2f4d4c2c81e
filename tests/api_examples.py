"""The examples in the docstrings of the public API, and the setting in which they run.

docs/api/index.md describes the setting to readers (tests/reference.py).
"""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import sparklog
from sparklog.fs import FileSystem
from tests import public_api

RECORDS: Final = 600
_OPTIONS: Final = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def example_of(value: Any) -> doctest.DocTest:
    """Return the examples in the docstring of an exported class or function."""
    name = f"{value.__module__}.{value.__qualname__}"
    text = inspect.getdoc(value) or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, inspect.getsourcefile(value), 0)


def method_examples(cls: type) -> list[doctest.DocTest]:
    """Return the examples in the docstrings of a class's own public methods and properties."""
    members = [getattr(m, "__func__", m) for n, m in vars(cls).items() if not n.startswith("_")]
    functions = [getattr(member, "fget", None) or member for member in members]
    return [example_of(each) for each in functions if inspect.isfunction(each)]


def documented() -> dict[str, Any]:
    """Return {qualified name: class or function} of the public API; values have no docstring."""
    return {
        name: value
        for name, value in public_api.exports().items()
        if inspect.isclass(value) or inspect.isroutine(value)
    }


def needs_spark(test: doctest.DocTest) -> bool:
    """Return whether an example uses the Spark session, or the checkpoint of a Spark query."""
    nodes = [node for each in test.examples for node in ast.walk(ast.parse(each.source))]
    return any(isinstance(node, ast.Name) and node.id == "spark" for node in nodes) or any(
        isinstance(node, ast.Constant) and node.value == "checkpoint" for node in nodes
    )


def tests_of(value: Any) -> list[doctest.DocTest]:
    """Return all examples of an export, those of its methods included."""
    methods = method_examples(value) if inspect.isclass(value) else []
    return [test for test in [example_of(value), *methods] if test.examples]


def cases(*, spark: bool) -> list[str]:
    """Return the names of the exports whose examples need, or do not need, Spark."""
    return [
        name
        for name, value in documented().items()
        if any(needs_spark(test) for test in tests_of(value)) == spark and tests_of(value)
    ]


def undocumented(value: Any) -> list[str]:
    """Return what the docstrings of an exported class or function leave out.

    They describe each public method, each parameter, and each field of a dataclass. Methods that
    implement `FileSystem` are described there.
    """
    if not inspect.isclass(value):
        return _undocumented_parameters(value)
    text = inspect.getdoc(value) or ""
    fields = [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    if "docs/options.md" in text:  # which describes each field
        fields = []
    left_out = [name for name in fields if not name.startswith("_") and f"{name}: " not in text]
    for name, member in vars(value).items():
        method = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if name.startswith(("_", "test_")) or not inspect.isfunction(method):
            continue
        if value is not FileSystem and hasattr(FileSystem, name) and not inspect.getdoc(method):
            continue
        left_out += [] if inspect.getdoc(method) else [name]
        left_out += [f"{name}({each})" for each in _undocumented_parameters(method)]
    return left_out


def _undocumented_parameters(function: Any) -> list[str]:
    text = inspect.getdoc(function) or ""
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    if names == ["path"]:  # of a file: the first sentence names it
        return []
    return [name for name in names if f"{name}: " not in text]


@contextmanager
def directory(path: Path) -> Iterator[None]:
    """Run examples in `path`, because they name files and logs by relative paths."""
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def write_flights() -> None:
    """Create the log that the examples read, as the Spark query of the setting does."""
    numbers = [str(n) for n in range(RECORDS)]
    with sparklog.open("log", mode="rw") as log:
        log.create_topic("flights", partitions=2)
        rows = pa.table({"key": [f"N{int(n) % 9}" for n in numbers], "value": numbers})
        log.append("flights", rows)


def run(test: doctest.DocTest, **names: Any) -> None:
    """Run an example in the current directory. Raises AssertionError with what differs."""
    with sparklog.open(f"{Path.cwd()}/log", mode="rw") as log:
        bucket = f"file://{Path.cwd()}/bucket"
        test.globs = {"sparklog": sparklog, "pa": pa, "log": log, "bucket": bucket, **names}
        messages: list[str] = []
        runner = doctest.DocTestRunner(optionflags=_OPTIONS, verbose=False)
        runner.run(test, out=messages.append, clear_globs=False)
    assert not runner.failures, "".join(messages)
