"""The protocol of a home: the place where a log is stored, either log dirs or a bucket.

A `Home` object is a handle on the log that is stored there, read-only or writable. Everything else
(directories, object store, the needs of background work) is internal to the home.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparklog.errors import InvalidRequestError
from sparklog.progress import Progress
from sparklog.storage.commits import Chunk, CommitLog, FollowedLedger
from sparklog.storage.group_store import Groups
from sparklog.storage.lease import EndpointLease, UpkeepLease
from sparklog.storage.staging import Framing, Stager, TaskStaging
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo, View


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A partition that `Log.give_up` brings back online, and the lost offsets.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
        directory: The directory where the partition belongs.
        first: The first offset that is lost.
        end: The offset after the last lost record.
        kept: Whether records from `end` on are retained.
        why: What is missing or damaged.

    Examples:
        >>> import shutil
        >>> log.close()
        >>> shutil.rmtree("log/flights-0")  # by accident
        >>> with sparklog.open("log", mode="rw") as damaged:
        ...     for lost in damaged.give_up("flights"):
        ...         print(lost.partition, lost.first, lost.kept)
        0 0 False
    """

    topic: str
    partition: int
    directory: str
    first: int
    end: int
    kept: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPartition:
    """A partition that was moved between log dirs.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
        source: The path of the log dir that contained the partition.
        target: The path of the log dir that contains the partition now.
        bytes: The size of the moved records.
        took_ms: The duration of the move, in milliseconds.

    Examples:
        >>> with sparklog.open("disk1,disk2", mode="rw") as two_disks:
        ...     info = two_disks.create_topic("flights")
        ...     home = info.dirs[0].split("/")[-2]
        ...     other = {"disk1": "disk2", "disk2": "disk1"}[home]
        ...     moved = two_disks.move_partition("flights", 0, to=other)
        >>> moved.target.endswith(other)
        True
    """

    topic: str
    partition: int
    source: str
    target: str
    bytes: int
    took_ms: int


def not_offline(topic: str, partitions: Iterable[int]) -> InvalidRequestError:
    """Return the error for giving up partitions that are not offline."""
    names = ", ".join(f"{topic}-{partition}" for partition in partitions)
    return InvalidRequestError(
        f"{names} is not offline: only missing or damaged partitions can be given up"
    )


def not_writable(path: str) -> InvalidRequestError:
    """Return the error for a change of a log that is open for reading."""
    return InvalidRequestError(f"{path} is open for reading; use sparklog.open(path, mode='rw')")


class Home(Protocol):
    """A handle on an open log in its home (log dirs or a bucket). Threads may share the handle.

    Methods that change the log (`commits` and everything below it) raise InvalidRequestError if the
    log was opened read-only, or can only be read.
    """

    @property
    def path(self) -> str:
        """The path or URL as given by the user, for messages."""

    @property
    def identity(self) -> Hashable:
        """Identifies the open log, regardless of the spelling of the path.

        For a log dir: device and inode of the lock file. For a bucket: the log id, which a copy
        shares.
        """

    def is_current(self) -> bool:
        """Return True if the path still names the open log; False after `close`.

        Called for every micro-batch, so it costs at most a stat and no request.
        """

    @property
    def lost(self) -> str | None:
        """Why the log can no longer be used (see `abandon`), or None."""

    def abandon(self, why: str) -> None:
        """Stop using a log that was replaced. A step in progress is completed.

        Later calls raise LogReplacedError(why). The method writes and closes no files.
        """

    @property
    def view(self) -> View:
        """The readers' view."""

    @property
    def ledger(self) -> FollowedLedger:
        """The commit ledger for readers."""

    @property
    def groups(self) -> Groups:
        """The registered readers; also available if the log was opened read-only."""

    @property
    def commits(self) -> CommitLog:
        """The commit log, by which this handle changes the log."""

    def describe(self, name: str, topic: TopicState) -> TopicInfo:
        """Return the description of a topic for users, from the topic's state in the commit log.

        The result is the description that readers see after the commit. The view may not include
        the topic yet.
        """

    def known_topics(self) -> dict[str, TopicInfo]:
        """Return the topics that this handle knows; used by writers for each micro-batch.

        Cost: two stats in a log dir, no request in a bucket; the commit checks again.

        Raises:
            LogReplacedError: The log was replaced.
        """

    def staging(self) -> TaskStaging:
        """Return the staging for tasks. This handle will commit the rows of the tasks."""

    def sweep_staged(
        self, writer: str, batch: int, *, committed: Sequence[Chunk] = (), is_retried: bool = False
    ) -> int:
        """Delete uncommitted data that was staged for `writer`'s micro-batches up to `batch`.

        All these micro-batches are committed. Returns the number of deleted files or objects; the
        service deletes the rest. Failures are not raised.

        Args:
            writer: The writer.
            batch: The last committed micro-batch.
            committed: The chunks that this call committed for `batch`; empty if they are unknown or
                the commit was a replay. In this case a bucket does not delete any object.
            is_retried: Whether a task of the micro-batch took several attempts.
        """

    def stager(self, framing: Framing, *, label: str | None = None) -> Stager:
        """Return a stager. With `label` None, every chunk stays in memory."""

    def service_lease(self) -> UpkeepLease:
        """Return the lease for a service that works on the log. The lease is not acquired yet."""

    def endpoint_lease(self, said: Mapping[str, object]) -> EndpointLease:
        """Return the lease for coordinating consumer groups. One endpoint at a time can hold it.

        The lease is also available if the log was opened read-only. `said`: the description of this
        endpoint that other processes read.
        """

    def give_up(
        self, topic: str | None, partitions: Iterable[int] | None, *, dry_run: bool
    ) -> list[GivenUp]:
        """Bring offline partitions back online without their missing data; see `Log.give_up`."""

    def move_partition(
        self, topic: str, partition: int, to: str, *, progress: Progress | None
    ) -> MovedPartition:
        """Move a partition to another log dir; see `Log.move_partition`."""

    def close(self) -> None:
        """Close the log. Idempotent. Not required if the log was opened read-only."""
