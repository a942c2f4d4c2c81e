"""The contract of `sparklog.storage.lease.Lease` as a test class: each home subclasses it.

class TestMine(LeaseContract):
    @pytest.fixture
    def new_lease(self) -> Callable[[], Lease]: ...  # another service's lease of the same log
    @pytest.fixture
    def lose(self) -> Callable[[Lease], None]: ...   # what makes the home give it to others
"""

from collections.abc import Callable

import pytest

from sparklog.storage.lease import Lease, LeaseLostError


class LeaseContract:
    """What a service relies on, whatever keeps the lease."""

    def test_nobody_has_it_at_first(self, new_lease: Callable[[], Lease]) -> None:
        one = new_lease()
        assert not one.held
        assert one.holder() == {}
        with pytest.raises(LeaseLostError):
            one.check()

    def test_one_at_a_time(self, new_lease: Callable[[], Lease]) -> None:
        one, two = new_lease(), new_lease()
        assert one.acquire()
        assert one.acquire()  # it is ours already
        assert one.held
        one.check()
        assert not two.acquire()
        assert not two.held
        with pytest.raises(LeaseLostError):
            two.check()
        one.check()
        one.release()

    def test_a_release_lets_the_next_one_in_at_once(self, new_lease: Callable[[], Lease]) -> None:
        one, two = new_lease(), new_lease()
        assert one.acquire()
        one.release()
        one.release()
        assert not one.held
        with pytest.raises(LeaseLostError):
            one.check()
        assert two.acquire()
        two.check()
        assert not one.acquire()
        two.release()
        assert one.acquire()
        one.release()

    def test_the_holder_is_named(self, new_lease: Callable[[], Lease]) -> None:
        one, two = new_lease(), new_lease()
        assert one.acquire()
        assert {"pid", "host", "since_ms"} <= two.holder().keys()
        assert str(two.holder()["pid"]) in two.describe()
        one.release()

    def test_who_lost_it_is_told_before_the_next_step(
        self, new_lease: Callable[[], Lease], lose: Callable[[Lease], None]
    ) -> None:
        one, two = new_lease(), new_lease()
        assert one.acquire()
        lose(one)
        assert two.acquire()
        with pytest.raises(LeaseLostError, match="taken over"):
            one.check()
        assert not one.held
        one.release()  # gives back nothing of the other's
        two.check()
        two.release()
