"""Values of options that several commands take."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sparklog.cli.parsing import parse_time

EPOCH = datetime.fromtimestamp(0, UTC)


@given(st.integers(0, 2**42))
def test_a_time_is_exact_to_the_millisecond(time_ms: int) -> None:
    """A float of seconds would lose one in 160: what `erase --before` means is not for rounding."""
    when = EPOCH + timedelta(milliseconds=time_ms)
    assert parse_time(when.isoformat(), "--before") == time_ms
    assert parse_time(when.replace(tzinfo=None).isoformat(), "--before") == time_ms


def test_a_time_between_two_milliseconds_is_the_later_one() -> None:
    """So that "from then on" leaves out what is older."""
    assert parse_time("1970-01-01T00:00:01.0005Z", "--time") == 1001
    assert parse_time(None, "--time") is None
