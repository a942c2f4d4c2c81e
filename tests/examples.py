"""The scripts of examples/, for their tests."""

from __future__ import annotations

import importlib
import re
import textwrap
from types import ModuleType

import pytest

from tests.paths import ROOT

FOLDER = ROOT / "examples"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import examples/NAME.py as it finds its neighbours when it is run."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module(name)


def shown(module: ModuleType) -> str:
    """The output that the docstring shows, below its `$ python` line."""
    blocks = re.findall(r"^    \$ python [^\n]*\n((?:    [^\n]*\n)+)", module.__doc__ or "", re.M)
    assert blocks, f"{module.__name__} shows no output"
    return textwrap.dedent(blocks[0])
