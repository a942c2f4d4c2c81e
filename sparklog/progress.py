"""Progress callbacks, shown as a progress bar in notebooks."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final, ParamSpec, TypeVar, cast

from sparklog.html import Html, el

Progress = Callable[[int, int], None]
"""Called with (done, total) as the work progresses, from any thread."""
P = ParamSpec("P")
T = TypeVar("T")
_UPDATE_SECONDS: Final = 0.2
_TAKEN: Final[ContextVar[bool]] = ContextVar("a caller is told already", default=False)


def shows_progress(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Supply a notebook progress bar when the caller passes no `progress`.

    The bar is shown only in notebooks. With nested calls, the outermost shows the bar. Pass
    `progress=lambda done, total: None` for no bar.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            if _TAKEN.get() or (kwargs.get("progress") is None and not _is_here()):
                return function(*args, **kwargs)
            token = _TAKEN.set(True)
            try:
                if kwargs.get("progress") is not None:
                    return function(*args, **kwargs)
                with _bar(what) as bar:
                    call = cast(Callable[..., T], function)
                    return call(*args, **{**kwargs, "progress": bar})
            finally:
                _TAKEN.reset(token)

        return wrapper

    return decorate


def _is_here() -> bool:
    """Return whether this process is the kernel of a notebook that shows HTML."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    from IPython.display import display  # an optional library, which exists in notebooks

    began, known, due = monotonic(), (0, 0), 0.0

    def shown(state: str) -> Any:
        done, total = known
        gauge = el("progress", value=done, max=total) if total else el("progress")
        share = f"{done / total:.0%}, " if total else ""
        return _Shown(el("div", gauge, f" {what}: {share}{monotonic() - began:.0f} s{state}"))

    handle = cast(Any, display)(shown(""), display_id=True)

    def tell(done: int, total: int) -> None:
        nonlocal known, due
        known = done, total
        if monotonic() >= due:  # frequent updates of a cell make a browser slow
            due = monotonic() + _UPDATE_SECONDS
            handle.update(shown(""))

    state = ", stopped"
    try:
        yield tell
        state = ", done"
    finally:
        handle.update(shown(state))


class _Shown:
    def __init__(self, html: Html) -> None:
        self._html = html

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return ""  # for notebooks that are exported as text
