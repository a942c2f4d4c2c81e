"""Contract tests of `sparklog.storage.lease.Lease`. Each home has a subclass.

    class TestMine(LeaseContract):
        @pytest.fixture
        def new_lease(self) -> Callable[[], Lease]: ...  # another service's lease of the same log
        @pytest.fixture
        def lose(self) -> Callable[[Lease], None]: ...   # makes the home give the lease away
"""

from collections.abc import Callable

import pytest

from sparklog.storage.lease import EndpointLease, Lease, LeaseLostError, UpkeepLease


class LeaseContract:
    """Requirements of a service on a lease."""

    def test_nobody_has_it_at_first(self, new_lease: Callable[[], Lease]) -> None:
        one = new_lease()
        assert not one.held
        assert one.holder() == {}
        with pytest.raises(LeaseLostError, match=r"this (service|endpoint) has no lease"):
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
        pid, host = two.holder()["pid"], two.holder()["host"]
        assert two.describe().endswith(f" of process {pid} on host {host}")
        one.release()

    def test_who_lost_it_is_told_before_the_next_step(
        self, new_lease: Callable[[], Lease], lose: Callable[[Lease], None]
    ) -> None:
        one, two = new_lease(), new_lease()
        assert one.acquire()
        lose(one)
        assert two.acquire()
        with pytest.raises(LeaseLostError) as error:
            one.check()
        assert str(error.value).endswith(f": {two.describe()} has taken over; standing back")
        assert not one.held
        with pytest.raises(LeaseLostError, match="has no lease"):
            one.check()
        one.release()  # does not release the other's lease
        two.check()
        two.release()


class UpkeepLeaseContract(LeaseContract):
    """Requirements of services and borrowers of a lease.

    A subclass provides two fixtures: `new_lease`, which creates `UpkeepLease`s, and `later`, which
    advances the time by half a minute for a home that polls.
    """

    def test_who_lends_it_is_asked_and_gives_it_back(
        self, new_lease: Callable[[], UpkeepLease], later: Callable[[], None]
    ) -> None:
        one, two = new_lease(), new_lease()
        one.lends = True
        assert one.acquire()
        assert two.holder()["lends"] is True
        assert not one.is_requested()
        assert not two.acquire()
        two.request()
        later()
        two.request()
        assert one.is_requested()
        assert not two.is_requested()  # its own request does not count
        with pytest.raises(LeaseLostError, match="requests the lease"):
            one.check()
        assert one.held  # until its step is done
        one.release()
        assert one.is_requested()  # so it stands by
        assert two.acquire()
        two.withdraw()
        two.withdraw()
        later()
        assert not one.is_requested()
        assert not one.acquire()
        two.check()
        two.release()
        assert one.acquire()
        one.check()
        one.release()

    def test_who_lends_it_to_nobody_goes_on(
        self, new_lease: Callable[[], UpkeepLease], later: Callable[[], None]
    ) -> None:
        one, two = new_lease(), new_lease()
        assert one.acquire()
        assert "lends" not in two.holder()
        assert not two.acquire()
        two.request()
        later()
        one.check()
        two.withdraw()
        later()
        assert not one.is_requested()
        one.release()

    def test_several_ask_one_after_the_other(
        self, new_lease: Callable[[], UpkeepLease], later: Callable[[], None]
    ) -> None:
        one, two, three = new_lease(), new_lease(), new_lease()
        one.lends = True
        assert one.acquire()
        for other in (two, three):
            assert not other.acquire()
            other.request()
        later()
        assert one.is_requested()
        one.release()
        assert two.acquire()
        two.withdraw()
        assert not three.acquire()
        three.request()
        two.check()  # it doesn't lend a borrowed lease
        two.release()
        assert one.is_requested()  # by the third: the service waits
        assert three.acquire()
        three.withdraw()
        three.release()
        later()
        assert one.acquire()
        one.release()


class EndpointLeaseContract(LeaseContract):
    """Requirements of other endpoints on a lease. `new_lease` creates `EndpointLease`s."""

    def test_the_others_read_what_its_holder_tells(
        self, new_lease: Callable[[], EndpointLease]
    ) -> None:
        one, two = new_lease(), new_lease()
        assert one.published() is None
        with pytest.raises(LeaseLostError, match="this endpoint has no lease"):
            one.publish({"groups": []})
        assert one.acquire()
        assert two.published() == {}
        for groups in (["a"], ["long " * 1000], [], ["b", {"c": [1, None, "\u2028"]}]):
            one.publish({"groups": groups})
            assert two.published() == {"groups": groups}
        one.check()
        assert "since_ms" in two.holder()
        one.release()
        assert two.published() is None

    def test_nothing_is_left_of_an_earlier_hold(
        self, new_lease: Callable[[], EndpointLease]
    ) -> None:
        """An endpoint that coordinates again has no members yet, so no offsets are protected."""
        one = new_lease()
        assert one.acquire()
        one.publish({"groups": ["a"]})
        one.release()
        assert one.acquire()
        one.check()
        assert new_lease().published() == {}
        one.release()

    def test_nothing_is_left_of_the_last_holder(
        self, new_lease: Callable[[], EndpointLease]
    ) -> None:
        one, two = new_lease(), new_lease()
        assert one.acquire()
        one.publish({"groups": ["a long one"]})
        one.release()
        assert two.acquire()
        assert new_lease().published() == {}
        two.publish({})
        assert new_lease().published() == {}
        two.release()
