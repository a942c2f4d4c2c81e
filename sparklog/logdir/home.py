"""Opens logs in log dirs: `sparklog.storage.home.Home` for directories and files."""

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.chunk_stager import ChunksInMemory, ChunkStager
from sparklog.log.log import Log, home_of
from sparklog.logdir.chunk_files import sweep_chunks
from sparklog.logdir.closing import close_commits
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.group_offsets import GroupFiles
from sparklog.logdir.lease import EndpointLock, ServiceLease
from sparklog.logdir.ledger_reader import LedgerReader
from sparklog.logdir.log_dir_check import DriverLogDir
from sparklog.logdir.opening import clear_up, open_commits
from sparklog.logdir.partition_move import move_partition
from sparklog.logdir.paths import split_path
from sparklog.logdir.staging import ChunkFiles, LogDirStaging
from sparklog.logdir.topics_file import TOPICS_NAME, describe
from sparklog.logdir.unclean_election import give_up
from sparklog.logdir.view import LogDirView
from sparklog.progress import Progress
from sparklog.storage.commits import Chunk
from sparklog.storage.group_store import Groups
from sparklog.storage.home import GivenUp, MovedPartition, not_writable
from sparklog.storage.lease import EndpointLease, UpkeepLease
from sparklog.storage.staging import Framing, Stager, TaskStaging
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo, View


class CachedTopics:
    """A cache of the topics of a log that is open for writing.

    It is valid as long as the topics file is unchanged.
    """

    def __init__(self) -> None:
        self._stamp: tuple[int, ...] = ()
        self._topics: dict[str, TopicInfo] = {}

    def read(
        self, commits: LogDirCommits, topics: Callable[[], dict[str, TopicInfo]]
    ) -> dict[str, TopicInfo]:
        """Return the topics from the cache; call `topics` for them if the topics file has changed.

        Cost: two stats if the result is cached.

        Raises:
            LogReplacedError: The log was removed since it was opened.
        """
        path = os.path.join(commits.home, TOPICS_NAME)
        try:
            # The file is replaced by a rename, so every change gives it another inode or time. The
            # lock file's identity detects a log dir that was replaced as a whole.
            stamp = (*commits.file_id, *commits.fs.identity(path), commits.fs.mtime_ms(path))
        except FileNotFoundError:
            with commits.exclusive():  # raises if the log was removed
                return dict(topics())
        if stamp != self._stamp:
            self._stamp, self._topics = stamp, topics()
        return dict(self._topics)


class LogDirHome:
    """An open log in log dirs: a `sparklog.storage.home.Home`.

    A log that was opened with mode "r" has no commit log.
    """

    def __init__(
        self, path: str, fs: FileSystem, clock: Clock, view: View, commits: LogDirCommits | None
    ) -> None:
        self.path, self.view = path, view
        self.groups = Groups(GroupFiles(fs, view.home))
        self._fs, self._clock = fs, clock
        self._commits, self._is_closed = commits, False
        self._topics = CachedTopics()

    @property
    def identity(self) -> Hashable:
        """Device and inode of the lock file; the path if the log was opened read-only."""
        return self.path if self._commits is None else self._commits.file_id

    def is_current(self) -> bool:
        """Return True if the path still names the log. Cost: a stat."""
        return self._commits is None or self._commits.is_valid()

    @property
    def lost(self) -> str | None:
        """Why the log can't be used any more, or None."""
        return None if self._commits is None else self._commits.lost

    def abandon(self, why: str) -> None:
        """Stop using the log, for the reason `why`: release all locks, without changes on disk."""
        if self._commits is not None:
            self._commits.give_up(why)

    @property
    def ledger(self) -> LedgerReader:
        """The commit ledger for readers."""
        return LedgerReader(self._fs, self.view)

    @property
    def commits(self) -> LogDirCommits:
        """The commit log.

        Raises:
            InvalidRequestError: The log was opened with mode="r", or is closed.
        """
        if self._commits is None or self._is_closed:
            raise not_writable(self.path)
        return self._commits

    def describe(self, name: str, topic: TopicState) -> TopicInfo:
        """Return the description of a topic for users, from the topic's state in the ledger.

        The topics file is not used, because it may lag after a disk error.
        """
        return describe(self.commits.directories, name, topic, self.commits.offline)

    def known_topics(self) -> dict[str, TopicInfo]:
        """Return the topics, from memory as long as the topics file is unchanged."""
        return self._topics.read(self.commits, self.view.topics)

    def staging(self) -> TaskStaging:
        """Return the staging for tasks: files on a disk that they share with this process."""
        log_dir = DriverLogDir.read(self.commits.home, self._fs)
        return LogDirStaging(log_dir, self._fs, self._clock)

    def sweep_staged(
        self, writer: str, batch: int, *, committed: Sequence[Chunk] = (), is_retried: bool = False
    ) -> int:
        """Delete the chunk files of a writer's micro-batches up to `batch`, and very old files.

        Returns the number of deleted files. The other arguments matter only in a bucket.
        """
        directories = self.commits.directories
        now_ms = self._clock()
        return sweep_chunks(self._fs, directories, now_ms=now_ms, writer=writer, batch=batch)

    def stager(self, framing: Framing, *, label: str | None = None) -> Stager:
        """Return a stager, which turns rows into chunks for a commit; `label` names chunk files."""
        commits = self.commits
        if label is None:
            place = ChunksInMemory(commits.home)
            return ChunkStager(place, self._clock, framing, spread=commits.position)
        files = ChunkFiles(self._fs, commits.home, label)
        return ChunkStager(files, self._clock, framing, spread=label)

    def service_lease(self) -> UpkeepLease:
        """Return the lock of the log's service; not acquired yet."""
        return ServiceLease(self._fs, self._clock, self.commits.home)

    def endpoint_lease(self, said: Mapping[str, object]) -> EndpointLease:
        """Return the lock of the log's endpoints; not acquired yet.

        `said` has more fields of the holder's description, for other processes.
        """
        return EndpointLock(self._fs, self._clock, self.view.home, said)

    def give_up(
        self, topic: str | None, partitions: Iterable[int] | None, *, dry_run: bool
    ) -> list[GivenUp]:
        """Bring offline partitions back online without their missing data; see `Log.give_up`."""
        return give_up(self.commits, topic, partitions, dry_run=dry_run)

    def move_partition(
        self, topic: str, partition: int, to: str, *, progress: Progress | None
    ) -> MovedPartition:
        key = TopicPartition(topic, partition)
        return move_partition(self.commits, key, to, progress=progress)

    def close(self) -> None:
        """Close the log. The last writer leaves the log as after a broker's clean stop.

        Idempotent.
        """
        was_closed, self._is_closed = self._is_closed, True
        if self._commits is not None and not was_closed:
            close_commits(self._commits)


def open_log(
    path: str | os.PathLike[str],
    *,
    mode: str = "r",
    options: Mapping[str, object] | None = None,
    fs: FileSystem = LOCAL,
    view: Callable[[], View] | None = None,
    clock: Clock = system_clock,
    news: bool = True,
    tidy: bool = True,
) -> Log:
    """Open a log in log dirs; users call `sparklog.open`.

    Args:
        path: The log dir, or several joined by ",".
        mode: "r" or "rw".
        options: The log's options.
        fs: The file system.
        view: Opens the readers' view; by default the view of the log dirs alone.
        clock: The clock.
        news: Log a warning, not only a debug message, if a broker's directory is adopted.
        tidy: Remove expired files after the open (see `clear_up`).
    """
    if mode not in ("r", "rw"):
        raise InvalidRequestError(f"mode={mode!r}: mode must be 'r' or 'rw'")
    directories = split_path(path)
    parsed = LogOptions.parse(options or {})
    commits: LogDirCommits | None = None
    if mode == "rw":
        commits = open_commits(fs, clock, directories, parsed, news=news)
    try:
        if commits is not None and tidy:
            clear_up(commits)
        readers_view: View = LogDirView(fs, directories) if view is None else view()
    except BaseException:
        if commits is not None:
            close_commits(commits)
        raise
    home = LogDirHome(os.fspath(path), fs, clock, readers_view, commits)
    return Log(home, options=parsed, clock=clock)


def commits_of(log: Log) -> LogDirCommits:
    """Return the commit log of a log in log dirs, for background work.

    Raises:
        InvalidRequestError: The log was opened read-only, or is not in log dirs.
    """
    home = home_of(log)
    if not isinstance(home, LogDirHome):
        raise InvalidRequestError(f"{log.path} is not in log dirs: open the log dir itself")
    return home.commits
