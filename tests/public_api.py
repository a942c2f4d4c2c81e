"""The public API: what the public packages export, and the names and types in its signatures."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.doc_blocks import pages
from tests.paths import ROOT

PACKAGES: Final = (
    "sparklog",
    "sparklog.sink",
    "sparklog.service",
    "sparklog.checkpoint",
    "sparklog.kafka",
    "sparklog.tiered",
    "sparklog.testing",
)
MADE_BY: Final = {"Log": "sparklog.open", "ObjectStore": "sparklog.tiered.open_store"}
"""Classes that users get from a function: their constructors are internal."""
FILES: Final = ("sparklog.state",)  # in a log dir
INTERNAL_PAGES: Final = ("architecture.md", "slow-tests.md")  # for developers of sparklog
_TIME: Final = re.compile(
    r"(^|_)(age|beat|deadline|delay|duration|elapsed|idle|interval|latency|lifetime|now|"
    r"patience|period|since|silence|time|timeout|took|until|wait|when)(_|$)"
)
_UNIT: Final = re.compile(r"_(ms|seconds|bytes|offsets?|max|min)$|_per_second$")


def exports() -> dict[str, Any]:
    """Return {qualified name: object} of everything that the public packages export."""
    return {
        f"{package}.{name}": getattr(importlib.import_module(package), name)
        for package in PACKAGES
        for name in importlib.import_module(package).__all__
    }


def signatures() -> Iterator[tuple[str, str, Any]]:
    """Yield (callable or class, parameter or attribute, type) of all public signatures."""
    for name, value in exports().items():
        if inspect.isclass(value):
            yield from _of_class(name, value)
        elif inspect.isroutine(value):
            yield from _of_function(name, value)


def _of_class(name: str, cls: type) -> Iterator[tuple[str, str, Any]]:
    own = [base for base in cls.__mro__ if base.__module__.startswith("sparklog")]
    hints = _hints(cls)
    declared = [n for base in own for n in vars(base).get("__annotations__", {})]
    for attribute in dict.fromkeys(declared):
        if not attribute.startswith("_"):
            yield name, attribute, hints[attribute]
    members = {n: member for base in reversed(own) for n, member in vars(base).items()}
    for member_name, member in members.items():
        is_constructor = member_name == "__init__" and cls.__name__ not in MADE_BY
        if member_name.startswith(("_", "test_")) and not is_constructor:
            continue
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if inspect.isfunction(function):
            yield from _of_function(f"{name}.{member_name}", function)


def _of_function(name: str, function: Any) -> Iterator[tuple[str, str, Any]]:
    for parameter, kind in _hints(function).items():
        if not parameter.startswith("_"):
            yield name, parameter, kind


def _hints(value: Any) -> dict[str, Any]:
    module = inspect.getmodule(value)
    names = dict(vars(module)) if module is not None else {}
    if "SparkSession" not in names:  # imported for type checkers only
        names["SparkSession"] = Any
    return typing.get_type_hints(value, globalns=names)


def types_in(kind: Any) -> Iterator[type]:
    """Yield sparklog's classes in a type."""
    if isinstance(kind, list):  # the parameters of a Callable
        for part in kind:
            yield from types_in(part)
        return
    for part in typing.get_args(kind):
        yield from types_in(part)
    origin = typing.get_origin(kind) or kind
    if inspect.isclass(origin) and origin.__module__.partition(".")[0] == "sparklog":
        yield origin


def is_time_without_unit(name: str, kind: Any) -> bool:
    """Return whether a number of this name is a time or a duration whose unit is missing.

    A parameter that also takes a datetime cannot have a unit in its name.
    """
    kinds = [kind, *typing.get_args(kind)]
    is_number = any(each is int or each is float for each in kinds) and datetime not in kinds
    return is_number and bool(_TIME.search(name)) and not _UNIT.search(name)


def internal_names(code: str) -> list[str]:
    """Return the internal names of sparklog that a piece of code imports or uses."""
    tree = ast.parse(code)
    aliases: dict[str, str] = {}
    others: set[str] = set()  # names of other packages, which have rules of their own
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "sparklog":
                    found += [] if alias.name in PACKAGES else [alias.name]
                    name = alias.asname or "sparklog"
                    aliases[name] = alias.name if alias.asname else "sparklog"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sparklog":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found += [] if is_public(name) else [name]
                aliases[alias.asname or alias.name] = name
        elif isinstance(node, ast.ImportFrom):
            others |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        is_of_others = isinstance(node.value, ast.Name) and node.value.id in others
        if node.attr.startswith("_") and not node.attr.endswith("__") and not is_of_others:
            found.append(ast.unparse(node))
        name = _resolved(node, aliases)
        if name is not None and not is_public(name):
            found.append(name)
    return found


def _resolved(node: ast.Attribute, aliases: dict[str, str]) -> str | None:
    """Return the qualified name of an attribute of one of sparklog's packages."""
    base = node.value
    if isinstance(base, ast.Name):
        package = aliases.get(base.id)
    else:
        package = _resolved(base, aliases) if isinstance(base, ast.Attribute) else None
    return f"{package}.{node.attr}" if package in PACKAGES else None


def is_public(name: str) -> bool:
    """Return whether a qualified name is a public package or exported by one."""
    package, _, last = name.rpartition(".")
    return name in PACKAGES or (
        package in PACKAGES and last in importlib.import_module(package).__all__
    )


def internal_names_in_prose(text: str) -> list[str]:
    """Return the internal modules, and names in public packages, that a page mentions."""
    found = []
    for match in re.finditer(r"(?<![\w./-])sparklog((?:\.\w+)+)", text):
        parts = match[0].split(".")
        if (ROOT / "sparklog" / parts[1]).is_dir() or (ROOT / f"sparklog/{parts[1]}.py").is_file():
            known = parts[:3] if ".".join(parts[:2]) in PACKAGES else parts
            is_allowed = is_public(".".join(known)) or match[0] in FILES
            found += [] if is_allowed else [match[0]]
    return found


def is_for_users(page: Path) -> bool:
    """Return whether a page is the README or one of docs/."""
    return page == ROOT / "README.md" or page.parent == ROOT / "docs"


def code_of_pages() -> list[Any]:
    """Return every Python block of README and docs/, and every example, as test parameters."""
    blocks = [
        pytest.param(block.text, id=f"{pages.name_of(page)}:{block.line}")
        for page in pages.PAGES
        if is_for_users(page)
        for block in pages.blocks_of(page)
        if block.kind == "python" or block.name.endswith(".py")
    ]
    examples = (ROOT / "examples").rglob("*.py")
    return blocks + [
        pytest.param(path.read_text(), id=str(path.relative_to(ROOT))) for path in sorted(examples)
    ]
