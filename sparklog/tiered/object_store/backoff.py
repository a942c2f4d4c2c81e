"""Retry with exponential backoff and full jitter.

Source: "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): a pause is drawn evenly from
0 to the bound, so that many clients of a busy store don't retry at the same time.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sparklog.clock import pause
from sparklog.errors import InvalidRequestError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Number of attempts, and pauses between them (ms). Five attempts wait for 1.5 s at most.

    `sleep` takes milliseconds, `draw` returns a number in [0, 1); tests replace them.
    """

    attempts: int = 5
    first_ms: float = 100
    longest_ms: float = 10_000
    sleep: Callable[[float], None] = pause
    draw: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidRequestError(f"attempts={self.attempts}: want at least 1")

    def call(
        self,
        attempt: Callable[[], T],
        passes: Callable[[Exception], bool],
        again: Callable[[], None] = lambda: None,
    ) -> T:
        """Return the result of `attempt`, which is repeated while `passes` is true for the error.

        `again` is called before each further attempt. The last attempt's error is raised unchanged.
        """
        for number in range(self.attempts - 1):
            try:
                return attempt()
            except Exception as error:
                if not passes(error):
                    raise
            self.sleep(self.draw() * min(self.first_ms * 2**number, self.longest_ms))
            again()
        return attempt()
