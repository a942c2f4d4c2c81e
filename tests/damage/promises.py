"""What a command that a message quotes must achieve, run on a copy of the damaged log.

Every command must be spelled as sparklog takes it and must make nothing worse. Commands that
diagnose must report a problem where a read fails, and `verify --repair` must either leave a log
that `verify` finds whole, or say what is left.
"""

from collections.abc import Callable
from typing import Final

from sparklog.cli.exit_codes import EXIT_OK
from tests.damage.actions import command
from tests.damage.compare import changes_for_the_worse, word_of
from tests.damage.model import Actions, Place, Reading

_WRONG_USE: Final = 2
_ENDLESS: Final = ("ui", "consume", "import", "export")
"""Commands that end only when they are told to, or need another system."""


def broken_promise(words: str, place: Place, actions: Actions, truth: Reading) -> str | None:
    """Run a quoted command on a copy of its own; return what it failed to do, None if nothing."""
    if words.split()[0] in _ENDLESS:
        return None
    before = actions.read(place.path)
    try:
        code, out = command(words, place)
    except Exception as error:
        return f"raises {type(error).__name__}"
    if code == _WRONG_USE:
        return f"is refused as wrong use: {out.strip().splitlines()[-1]}"
    after = actions.read(place.path)
    name = _name(words, place.path)
    if name == "checkpoint reset":
        truth = _as_of(truth, int(words.partition("--to ")[2].split()[0]))
    worse = changes_for_the_worse(before, after, truth)
    is_told = name.endswith("verify --repair") and "lost" in out
    if worse and not is_told:
        return f"makes it worse: {worse[0]}"
    promise = _PROMISES.get(name)
    return None if promise is None else promise(code, out, word_of(after, truth))


def _name(words: str, path: str) -> str:
    parts = [word for word in words.split() if word != path]
    name = " ".join(parts[:2]) if parts[0] == "checkpoint" else parts[0]
    return f"{name} --repair" if "--repair" in parts else name


def _as_of(truth: Reading, batch: int) -> Reading:
    """Return what a checkpoint must hold that went back to a batch."""
    kept = ("query", f"batch {batch}")
    return {part: truth[part] for part in kept} | {"next": (batch, True)}


def _diagnoses(code: int, out: str, read: str) -> str | None:
    """A diagnosis reports a problem if a read fails."""
    is_silent = code == EXIT_OK and read != "right"
    return f"finds nothing, and a read is {read}" if is_silent else None


def _repairs(code: int, out: str, read: str) -> str | None:
    """A repair leaves a log that can be read, or says what is left."""
    if code == EXIT_OK and read != "right" and "lost" not in out:
        return f"reports success, and a read is {read}"
    return None


def _goes_back(code: int, out: str, read: str) -> str | None:
    """A reset goes back to a batch from which the query can continue."""
    return None if code == EXIT_OK else f"fails: {out.strip().splitlines()[-1]}"


_PROMISES: Final[dict[str, Callable[[int, str, str], str | None]]] = {
    "checkpoint verify": _diagnoses,
    "checkpoint verify --repair": _repairs,
    "checkpoint reset": _goes_back,
    "verify": _diagnoses,
    "verify --repair": _repairs,
}
