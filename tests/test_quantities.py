"""Sizes and lengths of time, for people."""

import pytest

from sparklog.quantities import DAY_MS, HOUR_MS, MINUTE_MS, duration_text, size_text


def test_sizes_have_three_figures_and_a_unit() -> None:
    sizes = (0, 1, 843, 1024, 1536, 120 << 10, 1023 << 20, 5 << 30, 3 << 60, -2048)
    assert [size_text(n) for n in sizes] == [
        "0 B", "1 B", "843 B", "1.0 KiB", "1.5 KiB", "120 KiB", "1023 MiB", "5.0 GiB", "3.0 EiB",
        "-2.0 KiB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"), (999, "999 ms"), (1000, "1 s"), (59_499, "59 s"), (59_600, "1 min"),
        (90_000, "1.5 min"), (MINUTE_MS * 59.6, "1 h"), (HOUR_MS * 9.5, "9.5 h"),
        (HOUR_MS * 23.6, "1 d"), (DAY_MS * 30, "30 d"), (DAY_MS * 800, "2.2 y"), (-2000, "2 s"),
        (DAY_MS * 365.25 * 3000, "3,000 y"),
    ],
)  # fmt: skip
def test_a_length_of_time_has_the_largest_unit_that_fits(ms: float, text: str) -> None:
    assert duration_text(ms) == text
