"""The home of an archive: implements `sparklog.storage.home.Home` for reading alone.

An archive has the segments of topics, and nothing else of a log: no ledger, no groups, no leases.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NoReturn

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.logdir.ledger import LEDGER
from sparklog.progress import Progress
from sparklog.storage.commits import Chunk, CommitLog
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.group_store import Groups, StoredGroup
from sparklog.storage.groups import Decision, Reader
from sparklog.storage.home import GivenUp, MovedPartition, not_writable
from sparklog.storage.lease import EndpointLease, LeaseLostError, UpkeepLease
from sparklog.storage.ledger_records import LedgerRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.staging import Framing, Stager, TaskStaging
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo, unknown_partition
from sparklog.tiered.archive.view import ArchiveView


class ArchiveHome:
    """An archive, open for reading. It has no resources that must be closed."""

    lost: Final = None

    def __init__(self, view: ArchiveView) -> None:
        self.path = self.identity = view.home
        self.view = view
        self.ledger = NoLedger(view)
        self.groups = Groups(NoGroups(view.home))

    def is_current(self) -> bool:
        """Return True: an archive can't be replaced by another log."""
        return True

    def abandon(self, why: str) -> None:
        """Do nothing, because an archive is not written."""

    @property
    def commits(self) -> CommitLog:
        """Raise InvalidRequestError, as do all methods that need the commit log."""
        raise not_writable(self.path)

    def describe(self, name: str, topic: TopicState) -> TopicInfo:
        raise not_writable(self.path)

    def known_topics(self) -> dict[str, TopicInfo]:
        raise not_writable(self.path)

    def staging(self) -> TaskStaging:
        raise not_writable(self.path)

    def sweep_staged(
        self, writer: str, batch: int, *, committed: Sequence[Chunk] = (), is_retried: bool = False
    ) -> int:
        raise not_writable(self.path)

    def stager(self, framing: Framing, *, label: str | None = None) -> Stager:
        raise not_writable(self.path)

    def service_lease(self) -> UpkeepLease:
        raise not_writable(self.path)

    def endpoint_lease(self, said: Mapping[str, object]) -> EndpointLease:
        """Return a lease that no endpoint holds or can acquire."""
        return NoLease(self.path)

    def give_up(
        self, topic: str | None, partitions: Iterable[int] | None, *, dry_run: bool
    ) -> list[GivenUp]:
        raise not_writable(self.path)

    def move_partition(
        self, topic: str, partition: int, to: str, *, progress: Progress | None
    ) -> MovedPartition:
        raise not_writable(self.path)

    def close(self) -> None:
        """Do nothing: an archive has no resources."""


class NoLedger:
    """The ledger of an archive, which has none: a `sparklog.storage.commits.FollowedLedger`."""

    exists: Final = False
    oldest: Final = 0
    end: Final = 0

    def __init__(self, view: ArchiveView) -> None:
        self.home, self._view = view.home, view

    def identity(self) -> None:
        """Return None: there is no ledger."""

    def records(self, first: int, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        return iter(())

    def records_backwards(self, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        return iter(())

    def commits_of(
        self, end: int, writers: Collection[str]
    ) -> Iterator[tuple[int, LedgerRecord]]:
        return iter(())

    def fold(self, state: LogState, end: int, *, first: int | None) -> None:
        """Leave `state` unchanged, because there are no records."""

    def dropped(self) -> Mapping[TopicPartition, int]:
        """Return no partitions: deleted topics are not known."""
        return {}

    def deleted(self) -> Collection[DeletedTopic]:
        """Return no topics: deleted topics are not known."""
        return ()

    def retained(self) -> Iterator[tuple[int, LedgerRecord]]:
        """Raise UnknownTopicError, because the commits are not in an archive."""
        raise unknown_partition(self._view, *LEDGER)


class NoGroups:
    """The groups of an archive, which stores none: a `sparklog.storage.group_store.GroupStore`."""

    are_waited_for: Final = False

    def __init__(self, url: str) -> None:
        self._url = url

    def key(self, group: str) -> str:
        return group

    def naming(self, group: str) -> AbstractContextManager[None]:
        """Return a context without effect."""
        return nullcontext()

    def read(self, group: str) -> Reader | None:
        """Return None: no group is known."""
        return None

    def read_all(self) -> Sequence[StoredGroup]:
        return ()

    def update(
        self, group: str, decide: Decision, *, heal: bool = False, durably: bool = True
    ) -> bool:
        """Raise InvalidRequestError."""
        _refuse(self._url)

    def delete(self, key: str, *, durably: bool = True) -> bool:
        """Return False: the group does not exist."""
        return False


class NoLease:
    """The endpoint lease of an archive: no endpoint can have it."""

    held: Final = False

    def __init__(self, url: str) -> None:
        self._url = url

    def acquire(self) -> bool:
        """Raise InvalidRequestError."""
        _refuse(self._url)

    def check(self) -> None:
        """Raise LeaseLostError."""
        raise LeaseLostError(f"{self._url}: this endpoint has no lease")

    def publish(self, more: Mapping[str, object]) -> None:
        """Raise LeaseLostError."""
        self.check()

    def heartbeat(self) -> None:
        """Do nothing, because this process has no lease."""

    def holder(self) -> dict[str, object]:
        return {}

    def published(self) -> Mapping[str, object] | None:
        """Return None: there is no holder."""
        return None

    def describe(self) -> str:
        """Return that there is no holder."""
        return "no endpoint"

    def release(self) -> None:
        """Do nothing, because this process has no lease."""


def _refuse(url: str) -> NoReturn:
    raise InvalidRequestError(
        f"the archive {url} can't be changed; restore it to a log dir first (sparklog tier "
        "restore)"
    )
