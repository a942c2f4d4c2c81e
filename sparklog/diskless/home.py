"""A log that is stored in a bucket: implements `sparklog.storage.home.Home` without local files."""

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Any, Final

from sparklog.clock import Clock, system_clock
from sparklog.config import LogOptions
from sparklog.diskless.backpressure import MERGE_THREADS, BackPressure
from sparklog.diskless.capability_check import check_capabilities
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.home_object import check_new, known_home, make_home, read_home
from sparklog.diskless.lease import NumberedLease, TermLease
from sparklog.diskless.ledger import EntryReader, Head, StoreLedger
from sparklog.diskless.names import new_staged_name
from sparklog.diskless.object_keys import check_sealed, new_transport_key
from sparklog.diskless.service_log import ServiceLog
from sparklog.diskless.staged_chunks import delete_of_earlier_runs, delete_retried, objects_of
from sparklog.diskless.staging import UNDER_WAY, DisklessStaging, StagedObjects
from sparklog.diskless.state_objects import StateObjects, StateWriter
from sparklog.diskless.view import DisklessView
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.log.chunk_stager import ChunksInMemory, ChunkStager
from sparklog.log.log import Log
from sparklog.progress import Progress
from sparklog.storage.commits import Chunk
from sparklog.storage.group_store import Groups
from sparklog.storage.home import GivenUp, MovedPartition, not_offline, not_writable
from sparklog.storage.lease import EndpointLease, UpkeepLease
from sparklog.storage.staging import INLINE_BYTES, Framing, Stager, TaskStaging, chunk_label
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import open_objects
from sparklog.tiered.target import open_store

_LOGGER: Final = logging.getLogger("sparklog")


class DisklessHome:
    """A log in a bucket. A log that is opened for reading has no `commits`.

    Makes no request to the store before its first use.
    """

    def __init__(
        self, path: str, head: Head, objects: ExtentObjects, clock: Clock,
        commits: DisklessCommits | None, states: StateWriter, *, reopen: Callable[[], Head],
        storage_options: Mapping[str, Any] | None, parallel: int,
    ) -> None:  # fmt: skip
        """Prepare the home, without a request.

        Args:
            reopen: Finds the log that is stored at the URL after the log was replaced.
            storage_options: Passed to tasks, so that they can open the store.
            parallel: The number of concurrent PUTs of a stager.
        """
        self.path, self.head, self.objects = path, head, objects.remote
        self._groups = Groups(GroupObjects(objects.store, retry=objects.remote.retry))
        self._clock = clock
        self._commits, self._states = commits, states
        self._storage_options, self._parallel = dict(storage_options or {}), parallel
        self._ledger = StoreLedger(path, head, retry=self.objects.retry)
        # Writers of which this handle has deleted staged objects of earlier runs.
        self._swept: Set[str] = frozenset()
        # The view opens `head` at first, and reopens the log after it was replaced.
        heads = iter([head])
        self.view = DisklessView(path, objects, lambda: next(heads, None) or self._found(reopen))

    def _found(self, reopen: Callable[[], Head]) -> Head:
        self.abandon(f"another log is stored at {self.path} now; open it again")
        self.head = reopen()
        self._ledger = StoreLedger(self.path, self.head, retry=self.objects.retry)
        return self.head

    @property
    def identity(self) -> Hashable:
        """The log id."""
        return self.head.entries.log_id

    def is_current(self) -> bool:
        """Return True while the log is open for writing.

        A replaced log is detected by other checks.
        """
        return self._commits is None or not self._commits.is_closed

    @property
    def lost(self) -> str | None:
        """Why the log can't be used any more, or None."""
        return None if self._commits is None else self._commits.lost

    def abandon(self, why: str) -> None:
        """Make all later calls raise LogReplacedError(why)."""
        if self._commits is not None:
            self._commits.give_up(why)

    @property
    def ledger(self) -> StoreLedger:
        """The ledger's entries, for readers."""
        return self._ledger

    @property
    def groups(self) -> Groups:
        """The registered readers."""
        return self._groups

    @property
    def commits(self) -> DisklessCommits:
        """The commit log.

        Raises:
            InvalidRequestError: The log is open with mode "r".
        """
        if self._commits is None:
            raise not_writable(self.path)
        return self._commits

    def describe(self, name: str, topic: TopicState) -> TopicInfo:
        """Return the description of a topic of the state."""
        return self.view.describe(name, topic)

    def known_topics(self) -> dict[str, TopicInfo]:
        """Return the topics as of the newest folded entry. Makes no request."""
        topics = self.head.state.log.topics
        return {name: self.view.describe(name, topic) for name, topic in sorted(topics.items())}

    def staging(self) -> TaskStaging:
        """Return the staging of tasks: each writes its own objects, encrypted with a key ring.

        Raises:
            InvalidRequestError: The log is encrypted, and there is no key ring.
        """
        commits = self.commits
        check_sealed(commits.known.keys, self.objects.keys, self.path)
        return DisklessStaging(
            url=self.path,
            log_id=self.head.entries.log_id,
            head=commits.known.number,
            storage_options=self._storage_options,
            transport_key=None if self.objects.keys is None else new_transport_key(),
            parallel=self._parallel,
            store=self.objects.store,
            clock=self._clock,
        )

    def sweep_staged(
        self, writer: str, batch: int, *, committed: Sequence[Chunk] = (), is_retried: bool = False
    ) -> int:
        """Delete objects that failed attempts staged for this micro-batch.

        The service deletes all other uncommitted objects.
        Cost: a listing and a deletion for a writer's first micro-batch on this handle and with
            `is_retried`; otherwise no request.
        """
        kept = objects_of(committed)
        is_first, self._swept = writer not in self._swept, self._swept | {writer}
        if not kept or not (is_first or is_retried):
            return 0
        store, state, deleted = self.objects.store, self.head.state, 0
        label = chunk_label(writer, batch)
        try:
            if is_retried:
                deleted = delete_retried(store, state.log_id, label, kept)
            if is_first:
                deleted += delete_of_earlier_runs(store, state, label, kept)
        except (SparklogError, OSError) as error:
            _LOGGER.debug(
                "%s: staged objects remain until the service deletes them: %s", self.path, error
            )
        return deleted

    def stager(self, framing: Framing, *, label: str | None = None) -> Stager:
        """Return a stager. `label` becomes part of the names of staged objects."""
        known = self.commits.known
        if label is None:
            place = ChunksInMemory(self.path)
            return ChunkStager(place, self._clock, framing, spread=known.next_number)
        objects = StagedObjects(
            self.objects.store,
            lambda: new_staged_name(known.log_id, max(known.number, 0), label),
            inline_max=INLINE_BYTES,
            parallel=self._parallel,
            ring=self.objects.keys,
        )
        return ChunkStager(objects, self._clock, framing, spread=label)

    def service_lease(self) -> UpkeepLease:
        """Return the lease of the log's service: the log's term. The caller acquires it."""
        return TermLease(ServiceLog(self.commits))

    def endpoint_lease(self, said: Mapping[str, object]) -> EndpointLease:
        """Return the lease of the log's endpoints, made of numbered objects.

        The caller acquires it.
        """
        return NumberedLease(self.objects.store, self._clock, said)

    def give_up(
        self, topic: str | None, partitions: Iterable[int] | None, *, dry_run: bool
    ) -> list[GivenUp]:
        """Return no partitions, because no partition of a log in a bucket is ever offline.

        Raises:
            InvalidRequestError: Partitions were named.
        """
        _ = self.commits  # raises for a log that is open for reading
        if topic is not None and partitions is not None:
            raise not_offline(topic, partitions)
        return []

    def move_partition(
        self, topic: str, partition: int, to: str, *, progress: Progress | None
    ) -> MovedPartition:
        """Raise InvalidRequestError, because a log in a bucket has no log dirs."""
        raise InvalidRequestError(
            f"{self.path} is a log in an object store, which has no log dirs, so its partitions "
            "can't be moved"
        )

    def close(self) -> None:
        """Stop writing. Idempotent."""
        if self._commits is not None:
            self._commits.close()
            self._states.close()


def open_log(
    url: str,
    *,
    mode: str = "r",
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    remote: RemoteOptions | None = None,
    stopped: Callable[[], bool] = lambda: False,
    clock: Clock = system_clock,
    store: Store | None = None,
    retry_policy: RetryPolicy | None = None,
    background: bool = True,
) -> Log:
    """Open a log in a bucket. Internal; users call `sparklog.open`.

    Mode "rw" creates the log if there is none. The prefix has to be empty, and the store must pass
    the capability check. Mode "r" makes no request yet.

    Args:
        store, retry_policy: Used by tests instead of the URL's own, without the capability check.
        background: Write state objects in a separate thread.
    """
    if mode not in ("r", "rw"):
        raise InvalidRequestError(f"mode must be 'r' or 'rw'; got {mode!r}")
    parsed = LogOptions.parse(options or {})
    opened = open_store(url, storage_options) if store is None else store
    objects = ExtentObjects(open_objects(lambda: opened, remote or RemoteOptions(), stopped))

    retry = objects.remote.retry
    known_ids: list[str] = []  # the log id from the check below, which spares a request

    def log_id() -> str:
        return known_ids.pop() if known_ids else retry.call(lambda: known_home(opened)).log_id

    def open_head() -> tuple[Head, StateObjects]:
        entries = EntryReader(opened, log_id, cache=objects.entries)
        states = StateObjects(opened, lambda: entries.log_id)
        head = Head(
            entries,
            newer=lambda least: retry.call(lambda: states.newest(least)),
            check_new=lambda: check_new(opened, entries.log_id),
        )
        return head, states

    head, states = open_head()
    writer = StateWriter(states, in_thread=background)
    commits: DisklessCommits | None = None
    if mode == "rw":
        check = check_capabilities if store is None else None
        home_object = read_home(opened) or make_home(opened, clock, check)
        known_ids.append(home_object.log_id)

        def is_in_place() -> bool:
            current = read_home(opened)
            return current is not None and current.log_id == home_object.log_id

        commits = DisklessCommits(
            url, head, parsed, clock, retry_policy or RetryPolicy(), keyring=objects.remote.keys,
            created=writer.created, is_in_place=is_in_place,
        )  # fmt: skip
        commits.catch_up()
        pressure = BackPressure(
            commits, clock, max_extents=parsed.diskless_backpressure_max_extents,
            keyring=objects.remote.keys, threads=MERGE_THREADS if background else 1,
        )  # fmt: skip
        commits.relieve = pressure.relieve
    home = DisklessHome(
        url, head, objects, clock, commits, writer, reopen=lambda: open_head()[0],
        storage_options=storage_options, parallel=UNDER_WAY if background else 1,
    )  # fmt: skip
    return Log(home, options=parsed, clock=clock)
