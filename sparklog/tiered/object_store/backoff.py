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
    """The number of attempts, and the pauses between them. Five attempts wait for 1.5 s at most.

    Attributes:
        attempts: The number of attempts.
        first_ms: The longest first pause; each further pause may be twice as long.
        longest_ms: The longest pause.
        sleep: Waits for a number of milliseconds; for tests.
        draw: Returns a random number in [0, 1); for tests.

    Examples:
        >>> from sparklog.tiered import Retry, open_store
        >>> store = open_store(bucket, retry=Retry(attempts=8))
    """

    attempts: int = 5
    first_ms: float = 100
    longest_ms: float = 10_000
    sleep: Callable[[float], None] = pause
    draw: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise InvalidRequestError(f"attempts={self.attempts} must be at least 1")

    def call(
        self,
        attempt: Callable[[], T],
        passes: Callable[[Exception], bool],
        again: Callable[[], None] = lambda: None,
    ) -> T:
        """Return the result of a function, which is called again while its errors may pass.

        Args:
            attempt: The function.
            passes: Whether an error may pass, so that another attempt can succeed.
            again: Called before each further attempt.

        Raises:
            Exception: The last attempt's error, unchanged.
        """
        for number in range(self.attempts - 1):
            try:
                return attempt()
            except Exception as error:
                if not passes(error):
                    raise
            # Outside of the `except` block: an error of the next attempt would otherwise be chained
            # to this one, and be classified by it.
            self.sleep(self.draw() * min(self.first_ms * 2**number, self.longest_ms))
            again()
        return attempt()
