"""Rules, switched off in one place each: mutants of `tests/mutants`, played by the model.

`mutations` switches a rule off altogether, or at its main place. `places` finds the other ones, and
those that the model's schedules reach are played here. For the rest their own tests are enough.
"""

import ast
import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any, Final
from unittest import mock

from tests.diskless.model.mutations import COMMITS, NAPS, RESETS, SERVICES, Mutation
from tests.diskless.model.simulation import ALL, DELETIONS, Cast
from tests.mutants import MUTANTS, Mutant
from tests.paths import ROOT


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Replace the functions and methods that the mutant changes, wherever they are imported."""
    text = (ROOT / mutant.file).read_text()
    module = importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))
    before, after = (_functions(each) for each in (text, mutant.applied(text)))
    changed = [name for name, node in after.items() if ast.dump(node) != ast.dump(before[name])]
    assert changed, f"{mutant.name} changes no function"
    with ExitStack() as patches:
        for name in changed:
            _replace(patches, module, name, after[name])
        yield


def _functions(text: str) -> dict[str, ast.FunctionDef]:
    """{"function" or "Class.method": its definition}."""
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}.{each.name}": each for each in methods}
    return found


def _replace(
    patches: ExitStack, module: ModuleType, name: str, node: ast.FunctionDef
) -> None:
    made: dict[str, Any] = {}
    code = compile(ast.Module([node], []), module.__file__ or "", "exec")
    exec(code, module.__dict__, made)
    owner, _, function = name.rpartition(".")
    if owner:
        patches.enter_context(
            mock.patch.object(getattr(module, owner), function, made[function])
        )
        return
    real = getattr(module, function)
    for each in [m for n, m in sys.modules.items() if n.startswith("sparklog.")]:
        if getattr(each, function, None) is real:
            patches.enter_context(mock.patch.object(each, function, made[function]))


_BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}


def _played(name: str, seed: int = 0, cast: Cast = ALL) -> Mutation:
    off = partial(applied, _BY_NAME[name])
    return Mutation(rule=name, without=f"mutant {name} is in", seed=seed, off=off, cast=cast)


PLAYED: Final = (
    _played("merge-of-other-extents"),
    _played("inline-data-cut-while-named"),
    _played("a-state-of-another-history"),
    _played("cleaned-partitions-without-gaps"),
    _played("an-own-entry-is-anothers", 13, COMMITS),
    _played("an-own-entry-is-anothers-when-giving-up", 17, COMMITS),
    _played("a-commit-that-knew-all-but-the-reset", 25, RESETS),
    _played("staged-below-the-floor-by-one-is-taken", 72, NAPS),
    _played("what-can-still-be-committed-is-swept", 1, NAPS),
    _played("entries-are-put", 0, COMMITS),
    _played("no-ops-are-put", 0, COMMITS),
    _played("any-entry-is-the-no-op", 17, COMMITS),
    _played("positions-are-put", 6),
    _played("segments-that-are-named-are-swept"),
    _played("staged-objects-that-are-named-are-swept", 0, NAPS),
    _played("a-floor-of-a-lost-lease", 0, SERVICES),
    _played("a-writers-merge-under-any-term", 3, SERVICES),
    _played("a-term-that-another-took-meanwhile", 10, SERVICES),
    _played("topics-given-up-before-their-delay", 2, DELETIONS),
)
