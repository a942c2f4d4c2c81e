"""The kernel's .py sources as second modules, whatever build the package runs."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import sparklog.format


def load(name: str) -> ModuleType:
    """`sparklog/format/<name>.py`, run by Python even where it is compiled."""
    path = Path(sparklog.format.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"interpreted_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert not getattr(module, "COMPILED", False)
    return module
