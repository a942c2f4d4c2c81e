"""What a log asks of its home: one handle on it, for reading or for writing too.

Everything else of a home (its directories, its store, what its background work needs) is its own.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparklog.errors import InvalidRequestError
from sparklog.progress import Progress
from sparklog.storage.commits import Chunk, CommitLog, FollowedLedger
from sparklog.storage.groups import Groups
from sparklog.storage.lease import EndpointLease, UpkeepLease
from sparklog.storage.staging import Framing, Stager, TaskStaging
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo, View


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A partition that `Log.give_up` brings back online, and the offsets that it loses.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
        directory: The directory where the partition belongs.
        first: The first offset that is lost.
        end: The offset after the last one that is lost.
        kept: Whether records from `end` on are kept.
        why: What is missing or damaged.
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
    """A partition that was moved between log dirs: `bytes` of records from `source` to `target`."""

    topic: str
    partition: int
    source: str
    target: str
    bytes: int
    took_ms: int


def not_offline(topic: str, partitions: Iterable[int]) -> InvalidRequestError:
    """Return the error for giving up partitions of which nothing is missing."""
    names = ", ".join(f"{topic}-{partition}" for partition in partitions)
    return InvalidRequestError(
        f"{names} is not offline: only missing or damaged partitions can be given up"
    )


class Home(Protocol):
    """A log, opened where it is kept. Threads may share it.

    What changes the log (`commits` and all below it) raises InvalidRequestError where it was opened
    for reading, or can only be read.
    """

    @property
    def path(self) -> str:
        """Where the log is, as its user named it: for messages."""

    @property
    def identity(self) -> Hashable:
        """What tells the log that is open from every other one, however its path is spelled.

        A log dir's lock file by device and inode; a store's log id, which a copy of it shares.
        """

    def is_current(self) -> bool:
        """Tell whether the path still names the log that is open here; False once it is closed.

        Asked for every micro-batch: a stat, or what is known without a request.
        """

    @property
    def lost(self) -> str | None:
        """Why the log can't be used any more (see `abandon`), or None."""

    def abandon(self, why: str) -> None:
        """Let go of a log that was replaced: a step under way ends, then all raises.

        Whoever uses it gets LogReplacedError(why). Nothing is written by that, nothing closed.
        """

    @property
    def view(self) -> View:
        """What readers see."""

    @property
    def ledger(self) -> FollowedLedger:
        """The commit ledger, as readers see it."""

    @property
    def groups(self) -> Groups:
        """The registered readers; also of a log that was opened for reading."""

    @property
    def commits(self) -> CommitLog:
        """The log's changes."""

    def describe(self, name: str, topic: TopicState) -> TopicInfo:
        """Return the user's view of a topic that the commit log's state knows.

        The view may be behind it: the home renders what readers see after the commit.
        """

    def known_topics(self) -> dict[str, TopicInfo]:
        """Return the topics as of what this handle knows; a writer's, for each micro-batch.

        Cost: two stats in a log dir, no request in a store; the commit checks again.
        Raises: LogReplacedError.
        """

    def staging(self) -> TaskStaging:
        """Return how tasks stage rows for commits of this handle, begun now."""

    def sweep_staged(
        self, writer: str, batch: int, *, committed: Sequence[Chunk] = (), is_retried: bool = False
    ) -> int:
        """Delete what was staged for `writer`'s micro-batches up to `batch`, and for nobody.

        It has committed them. Returns how many; the service deletes the rest. Raises nothing.
        Args: committed: the chunks of the commit of `batch` by this very call; none if they are
            not known or it was a replay: a store then keeps everything. is_retried: a task of the
            micro-batch took several attempts.
        """

    def stager(self, framing: Framing, *, label: str | None = None) -> Stager:
        """Return what makes chunks of rows; `label` None keeps every chunk in memory."""

    def service_lease(self) -> UpkeepLease:
        """Return the lease that a service takes before it works on the log; not taken yet."""

    def endpoint_lease(self, said: Mapping[str, object]) -> EndpointLease:
        """Return the lease that one of the log's endpoints has, which coordinates groups.

        Also of a log that is open for reading. `said`: what the others read of its holder.
        """

    def give_up(
        self, topic: str | None, partitions: Iterable[int] | None, *, dry_run: bool
    ) -> list[GivenUp]:
        """Give up what offline partitions miss, and go on; see `Log.give_up`."""

    def move_partition(
        self, topic: str, partition: int, to: str, *, progress: Progress | None
    ) -> MovedPartition:
        """Move a partition to another log dir; see `Log.move_partition`."""

    def close(self) -> None:
        """Let go of it. Idempotent; what was opened for reading needs none."""
