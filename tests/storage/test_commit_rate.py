"""A reader's pace: small however long it runs, and true about the recent past."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.storage.commit_rate import BREAK_MS, CommitRate, RatePoint


def run(steps: list[tuple[int, int]]) -> CommitRate:
    pace, time_ms, total = CommitRate(0), 0, 0
    for wait_ms, read in steps:
        time_ms, total = time_ms + wait_ms, total + read
        pace = pace.after_commit(RatePoint(time_ms, 1, total))
    return pace


def test_it_stays_small_and_knows_the_speed() -> None:
    pace = run([(10_000, 50)] * 20_000)
    assert len(pace.points) <= 24
    assert len(str(pace.to_json())) < 1200
    assert pace.longest_ms == 10_000
    assert pace.last_ms - pace.since_ms == 19_999 * 10_000
    speed = pace.speed()
    assert speed is not None
    assert speed[0] == 50 / 10_000
    assert speed[1] <= BREAK_MS


def test_one_that_commits_every_twenty_minutes_has_a_speed() -> None:
    """Its pauses are longer than what a speed is measured over, and shorter than a break."""
    assert run([(20 * 60_000, 1200)] * 5).speed() == (1200 / (20 * 60_000), 20 * 60_000)
    assert run([(20 * 60_000, 1200)]).speed() is None
    assert CommitRate(0).speed() is None


def test_a_long_pause_or_a_step_back_begins_a_new_run() -> None:
    pace = run([(10_000, 50)] * 100)
    later = pace.after_commit(RatePoint(pace.last_ms + BREAK_MS + 1, 1, 10_000))
    assert (later.since_ms, len(later.points)) == (later.last_ms, 1)
    assert pace.after_commit(RatePoint(pace.last_ms + 1000, 1, 0)).points[0].total == 0
    assert pace.after_commit(RatePoint(0, 1, 10_000)).since_ms == 0
    joined = pace.after_commit(RatePoint(pace.last_ms + 1000, 2, 10))  # another partition
    assert joined.since_ms == pace.since_ms
    assert joined.speed() is None


@given(st.lists(st.tuples(st.integers(0, BREAK_MS), st.integers(0, 100)), min_size=1))
def test_what_is_kept_is_in_order_and_comes_back(steps: list[tuple[int, int]]) -> None:
    pace = run(steps)
    times = [point.time_ms for point in pace.points]
    assert times == sorted(times)
    assert times[-1] == sum(wait for wait, _ in steps)
    assert CommitRate.from_json(pace.to_json()) == pace


def test_a_pace_that_is_none_is_passed_over() -> None:
    for kept in (None, [], {}, {"since": 1}, {"since": 1, "longest": 0, "points": [[1]]}):
        assert CommitRate.from_json(kept) is None
