"""A plugin of pytest: the record kernel runs interpreted, as where there is no C compiler.

python -m pytest -p tests.format.without_compiler ...
"""

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

PACKAGE = "sparklog.format"


class Sources:
    """Finds the .py files of the kernel's package, whatever else lies beside them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.rpartition(".")[0] != PACKAGE or not path:
            return None
        return FileFinder(path[0], (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name, target)


assert PACKAGE not in sys.modules
sys.meta_path.insert(0, Sources())
