"""Waiting for what a thread, a process or a client brings about: for the event, not for a time."""

import http.client
import inspect
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, TypeVar

SECONDS_MAX: Final = 90.0  # the end of hope: a busy machine takes its time, and that is no fault
T = TypeVar("T")


def until(
    holds: Callable[[], T], what: str = "", *, state: Callable[[], Any] | None = None,
    seconds: float = SECONDS_MAX, pause_s: float = 0.01,
) -> T:  # fmt: skip
    """Ask `holds` until it says something true, and return that.

    A failure tells `what` was awaited (the line of code if nothing is given), and the last state:
    what `state` returns, else the last answer.
    """
    ends = time.monotonic() + seconds
    while not (found := holds()):
        if time.monotonic() > ends:
            last = found if state is None else state()
            awaited = what or _line_of(holds)
            raise AssertionError(f"{awaited}: not within {seconds:g} s; at last {last!s}")
        time.sleep(pause_s)
    return found


def answered(request: str | urllib.request.Request) -> bytes:
    """Return what a server says at last.

    One that can't answer in time (503), or lets go of who is slow, is asked again: both of them are
    on this machine, which may be busy.
    """

    def said() -> list[bytes]:
        try:
            with urllib.request.urlopen(request, timeout=240) as answer:
                return [answer.read()]
        except urllib.error.HTTPError as error:
            with error:
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise
        except http.client.RemoteDisconnected:
            pass
        return []

    return until(said, f"an answer to {request}", pause_s=0.2)[0]


def _line_of(code: Any) -> str:
    try:
        return inspect.getsource(code).strip()
    except (OSError, TypeError):
        return repr(code)
