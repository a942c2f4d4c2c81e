"""Creates a log in a bucket from remote segments, or as a fork of another log in a store.

A `BucketTarget` is the place of the new log, and creates the log that a source plans.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.diskless.capability_check import check_capabilities
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.fork_point import ForkPoint
from sparklog.diskless.forking import ForkSource, plan_fork
from sparklog.diskless.home_object import known_home, place_home, read_home
from sparklog.diskless.import_objects import LogImport, NewLog
from sparklog.diskless.ledger import EntryReader, Head, StoreLedger
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import StateObjects
from sparklog.diskless.tier_import import plan_tier_import
from sparklog.errors import InvalidRequestError, SparklogError, StorageUnavailableError
from sparklog.log.copied_log import offsets_by_topic
from sparklog.log.fork_points import ForkPointRequest
from sparklog.log.topic_names import new_topic_id
from sparklog.progress import Progress, shows_progress
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import open_objects


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLog:
    """A log that was created from another log, or would be (`dry_run`).

    `offsets`: {topic: {partition: (log start, end)}}; `writers`: {writer: its last batch}.
    `ledger_offset`, `time_ms`: for a fork, after the last record of the old ledger that is part of
    it. `copied_objects`, `copied_bytes`: copied by the store itself if both prefixes are in the
    same object store.
    """

    path: str
    epoch: int
    offsets: dict[str, dict[int, tuple[int, int]]]
    writers: dict[str, int]
    copied_objects: int
    copied_bytes: int
    took_ms: int
    dry_run: bool
    ledger_offset: int = 0
    time_ms: int = 0


def _nothing() -> None:
    """The default of `BucketTarget.finish`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTarget:
    """The place of a new log in a bucket, and how the log is created there.

    Args:
        store: The place. It must be empty, or contain what an interrupted call left.
        threads: The number of objects to copy in parallel.
        dry_run: Plan the log and write nothing.
        log_id: The id of the new log, if no other process can use the place; random by default.
        finish: Called once the log exists. If it fails, or is never called, a second call completes
            the log and calls it.
        clock: The current time.
    """

    store: Store
    threads: int = 8
    dry_run: bool = False
    log_id: str | None = None
    finish: Callable[[], object] = _nothing
    clock: Clock = system_clock

    def create(
        self, origin: str, plan: Callable[[str], NewLog], progress: Progress | None = None
    ) -> NewLog:
        """Create the log that `plan` returns for a log id.

        Args:
            origin: Describes the source. A second call must pass the same to complete what this
                call left.
            plan: Returns the contents of the new log.
            progress: Called with the copied bytes, and the bytes to copy.

        Raises: as `LogImport.claim` and `run`.
        """
        store = self.store
        home = LogImport(
            store,
            origin,
            write_state=_write_state,
            create_home=lambda store, log_id: place_home(store, log_id, self.clock).log_id,
            threads=self.threads,
        )
        is_log = home.claim(dry_run=self.dry_run)
        try:
            new = plan(known_home(store).log_id if is_log else self.log_id or new_topic_id())
        except SparklogError as error:  # release the prefix, so that another call can use it
            if not isinstance(error, StorageUnavailableError):
                home.release()
            raise
        if self.dry_run:
            return new
        if is_log:
            home.complete(new, finish=self.finish)
        else:
            if self.log_id is None:  # else no other process can use the place
                check_capabilities(store)
            home.run(new, progress=progress, finish=self.finish)
        return new

    def describe(self, new: NewLog, took_ms: int, **more: int) -> MadeLog:
        """Return a description of the new log, for people and scripts."""
        snapshot = new.snapshot
        return MadeLog(
            path=self.store.url,
            epoch=snapshot.epoch,
            offsets=offsets_by_topic(snapshot.ends, snapshot.starts),
            writers={name: last.batch for name, last in sorted(snapshot.writers.items())},
            copied_objects=len(new.objects),
            copied_bytes=new.size,
            took_ms=took_ms,
            dry_run=self.dry_run,
            **more,
        )


def _write_state(store: Store, state: DisklessState) -> None:
    StateObjects(store, lambda: state.log_id).write(state)


@shows_progress("restoring")
def restore_tier(
    source: Store,
    target: BucketTarget,
    *,
    topics: Collection[str] | None = None,
    options: RemoteOptions | None = None,
    progress: Progress | None = None,
) -> MadeLog:
    """Create a log from the remote segments in `source`; it continues at their end.

    Args:
        source: The remote segments.
        target: The place of the new log.
        topics: The topics to restore; all by default.
        options: The key ring, if manifests are encrypted.
        progress: See `BucketTarget.create`.
    Topics keep their ids, configs and leader epochs, and their records until retention.* is set.
    Raises: InvalidRequestError: the place isn't empty, or contains the import of another call;
        UnknownTopicError; DataCorruptionError: copies are missing or damaged;
        StorageUnavailableError. No log exists then; call again to continue.
    Cost: a request per copy that is examined, and one or two more per copied object.
    """
    watch = stopwatch()
    check_apart(source, target.store)
    if read_home(source) is not None:
        raise InvalidRequestError(
            f"{source.url} is a log, not remote segments: fork it (`sparklog fork`)",
            path=source.url,
        )
    objects = open_objects(lambda: source, options or RemoteOptions())
    suffix = "" if topics is None else f", topics {', '.join(sorted(set(topics)))}"

    def plan(log_id: str) -> NewLog:
        return plan_tier_import(
            objects, target.store, log_id,
            topics=topics, threads=target.threads, clock=target.clock,
        )  # fmt: skip

    new = target.create(f"the tier at {source.url}{suffix}", plan, progress)
    return target.describe(new, watch())


@shows_progress("forking")
def fork(
    source: Store,
    target: BucketTarget,
    wanted: ForkPointRequest,
    *,
    origin: str | None = None,
    adapt: Callable[[NewLog], NewLog] = lambda new: new,
    options: RemoteOptions | None = None,
    progress: Progress | None = None,
) -> MadeLog:
    """Create a log with the state of the log in `source` at one of its commits.

    Args:
        source: The old log: a bucket, or a backup.
        target: The place of the new log.
        wanted: The commit after which the fork ends.
        origin: A second call must pass the same to complete what this call left.
        adapt: Changes how objects and manifests of the new log are written.
        options: The key ring, if encrypted segments contain an end offset.
        progress: See `BucketTarget.create`.
    Raises: InvalidRequestError, OffsetOutOfRangeError: the requested records don't exist any more
        (retention, compaction, deleted topics), or the place isn't empty; UnknownTopicError;
        DataCorruptionError; StorageUnavailableError. No log exists then.
    Cost: a GET per entry up to the point, a copy by the store per object, and a pass over each
        segment that contains an end offset.
    """
    watch = stopwatch()
    check_apart(source, target.store)
    options = options or RemoteOptions()
    keyring = Keyring.load(options.remote_keyring) if options.remote_keyring else None
    entries = EntryReader(source, known_home(source).log_id)
    states = StateObjects(source, lambda: entries.log_id)
    head = Head(entries, newer=states.newest)
    points: list[ForkPoint] = []

    def plan(log_id: str) -> NewLog:
        log = ForkSource(
            entries=head.entries,
            ledger=StoreLedger(source.url, head),
            now=head.follow(),
            objects=ExtentObjects(open_objects(lambda: source, options)),
            older=lambda: [one for one in (states.newest(),) if one is not None],
        )
        point, new = plan_fork(
            log, target.store, log_id, wanted,
            keyring=keyring, dry_run=target.dry_run, clock=target.clock,
        )  # fmt: skip
        points.append(point)
        return adapt(new)

    origin = origin or f"the fork of {source.url} at {_words(wanted)}"
    new = target.create(origin, plan, progress)
    point = points[-1]
    return target.describe(
        new, watch(), ledger_offset=point.count, time_ms=point.state.log.time_ms
    )


def _words(wanted: ForkPointRequest) -> str:
    if wanted.writer is not None:
        return f"batch {wanted.batch} of {wanted.writer}"
    return f"{wanted.time_ms} ms" if wanted.offsets is None else f"{dict(wanted.offsets)}"


def check_apart(source: Store, target: Store) -> None:
    """Raise InvalidRequestError if either prefix contains the other."""
    one, other = source.url.rstrip("/") + "/", target.url.rstrip("/") + "/"
    if one.startswith(other) or other.startswith(one):
        raise InvalidRequestError(
            f"one of {target.url} and {source.url} contains the other: choose another prefix",
            path=target.url,
        )


def current_state(store: Store) -> DisklessState:
    """Return the state at the head of the log in a store. Raises: InvalidRequestError: no log."""
    entries = EntryReader(store, known_home(store).log_id)
    states = StateObjects(store, lambda: entries.log_id)
    return Head(entries, newer=states.newest).follow()
