"""Writers that meet spread their tries; alone nobody waits, and who lost before waits less."""

from sparklog.diskless.entry_creation import Contention, RetryPolicy


class Time:
    """A clock that pauses move on, and what they were."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.pauses: list[float] = []

    def sleep(self, ms: float) -> None:
        self.now_ms += ms
        self.pauses.append(ms)

    def contention(self) -> Contention:
        return Contention(
            RetryPolicy(sleep=self.sleep, draw=lambda: 1.0, timer=lambda: self.now_ms)
        )


def commit(time: Time, contention: Contention, number: int, *, took_ms: float = 10) -> bool:
    paused = contention.pause(0)
    time.now_ms += took_ms
    contention.won(number, took_ms)
    return paused


def test_alone_a_writer_never_waits() -> None:
    time = Time()
    contention = time.contention()
    assert not any(commit(time, contention, number) for number in range(100))
    assert time.pauses == []


def test_many_busy_writers_wait_about_as_long_as_all_of_them_need() -> None:
    time = Time()
    contention = time.contention()
    for number in range(0, 500, 10):  # nine others between two of ours
        commit(time, contention, number)
    assert 9 * 10 <= time.pauses[-1] <= 10 * 9 * 10


def test_who_lost_before_tries_sooner() -> None:
    time = Time()
    contention = time.contention()
    for number in range(0, 500, 10):
        commit(time, contention, number)
    time.pauses.clear()
    for losses in range(4):
        assert contention.pause(losses)
    assert time.pauses == sorted(time.pauses, reverse=True)
    assert time.pauses[-1] < time.pauses[0] / 3


def test_others_that_come_now_and_then_are_no_reason_to_wait() -> None:
    time = Time()
    contention = time.contention()
    for number in range(0, 30, 3):
        time.now_ms += 10_000
        assert not commit(time, contention, number)


def test_a_crowd_that_leaves_is_forgotten() -> None:
    time = Time()
    contention = time.contention()
    for number in range(0, 500, 10):
        commit(time, contention, number)
    found = [commit(time, contention, number) for number in range(500, 510)]
    assert found[0]
    assert not found[-1]


def test_a_lost_race_tells_of_another_one() -> None:
    time = Time()
    contention = time.contention()
    contention.lost()
    assert contention.pause(1)
