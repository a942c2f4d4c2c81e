"""The home of an archive: no ledger, no groups and no lease, and all changes are rejected."""

from pathlib import Path

import pytest

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.log.log import home_of
from sparklog.storage.home import Home
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.log_state import LogState
from tests.tiered.buckets import small_archive


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return home_of(small_archive(tmp_path))


def test_it_stores_no_groups(home: Home) -> None:
    assert not home.groups.are_waited_for
    with pytest.raises(InvalidRequestError, match="bucket can't be changed; restore"):
        home.groups.commit("g", {TopicPartition("t", 0): 1}, now_ms=1, host="h")
    assert home.groups.readers().damaged == {}


def test_it_has_no_ledger(home: Home) -> None:
    ledger, state = home.ledger, LogState()
    assert (ledger.exists, ledger.identity(), ledger.oldest, ledger.end) == (False, None, 0, 0)
    ledger.fold(state, ledger.end, first=None)
    assert not state.topics
    assert [*ledger.records(0, 0), *ledger.records_backwards(0), *ledger.commits_of(0, [])] == []
    assert not ledger.dropped()
    assert not ledger.deleted()
    with pytest.raises(UnknownTopicError, match="__sparklog_commits is not in dict://bucket"):
        ledger.retained()


def test_no_endpoint_can_coordinate_its_groups(home: Home) -> None:
    lease = home.endpoint_lease({"endpoint": "h:9092"})
    with pytest.raises(InvalidRequestError, match="can't be changed"):
        lease.acquire()
    assert not lease.held
    assert lease.holder() == {}
    assert lease.published() is None
    assert lease.describe() == "no endpoint"
    for use in (lease.check, lambda: lease.publish({"groups": {}})):
        with pytest.raises(LeaseLostError, match="has no lease"):
            use()
    lease.heartbeat()
    lease.release()
