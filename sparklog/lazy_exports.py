"""Exports of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_exports(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package with lazy exports.

    The package imports the same names under `if TYPE_CHECKING:`, for type checkers and editors,
    and calls this function in the `else:` branch, so that type checkers reject unknown names.

    An export may have the name of a module of the package, such as `sparklog.checkpoint.verify`.
    Python would replace the export by the module when the module is imported; this is prevented.

    Args:
        package: The `__name__` of the package.
        modules: {exported name: name of the module that defines it}.
    """

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if not (isinstance(value, ModuleType) and name in modules):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Package

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names
