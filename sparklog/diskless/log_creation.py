"""Creates a log in a bucket from remote segments, or as a fork of another log in a store.

Each source plans the contents of the log, and a `BucketTarget` creates it.
"""

from collections.abc import Callable, Collection

from sparklog.clock import stopwatch
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.fork_point import ForkPoint
from sparklog.diskless.forking import ForkSource, plan_fork
from sparklog.diskless.home_object import known_home, read_home
from sparklog.diskless.import_objects import BucketTarget, MadeLog, NewLog
from sparklog.diskless.ledger import EntryReader, Head, StoreLedger
from sparklog.diskless.state import DisklessState
from sparklog.diskless.state_objects import StateObjects
from sparklog.diskless.tier_import import plan_tier_import
from sparklog.errors import InvalidRequestError
from sparklog.log.fork_points import ForkPointRequest
from sparklog.progress import Progress, shows_progress
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import open_objects


@shows_progress("restoring")
def restore_tier(
    source: Store,
    target: BucketTarget,
    *,
    topics: Collection[str] | None = None,
    options: RemoteOptions | None = None,
    progress: Progress | None = None,
) -> MadeLog:
    """Create a log from the remote segments in `source`. New records follow the copied records.

    Topics keep their ids, configs and leader epochs, and their records until retention.* is set.
    After an error no log exists; a second call continues.
    Cost: a request per copy that is examined, and one or two more per copied object.

    Args:
        source: The remote segments.
        target: The place of the new log.
        topics: The topics to restore; all by default.
        options: The key ring, if manifests are encrypted.
        progress: See `BucketTarget.create`.

    Raises:
        InvalidRequestError: The place isn't empty, or contains the import of another call.
        UnknownTopicError: A topic does not exist.
        DataCorruptionError: Copies are missing or damaged.
        StorageUnavailableError: The store does not answer, or refuses the request.
    """
    watch = stopwatch()
    check_apart(source, target.store)
    if read_home(source) is not None:
        raise InvalidRequestError(
            f"{source.url} contains a log instead of remote segments: use `sparklog fork`",
            path=source.url,
        )
    objects = open_objects(lambda: source, options or RemoteOptions())
    suffix = "" if topics is None else f", topics {', '.join(sorted(set(topics)))}"

    def plan(log_id: str) -> NewLog:
        return plan_tier_import(objects, target, log_id, topics=topics)

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
    """Create a log with the state that the log in `source` had right after a commit.

    After an error no log exists.
    Cost: a GET per entry up to the point, a copy by the store per object, and a pass over each
        segment that contains an end offset.

    Args:
        source: The old log: a bucket, or a backup.
        target: The place of the new log.
        wanted: The commit after which the fork ends.
        origin: A second call must pass the same to complete what this call left.
        adapt: Changes how objects and manifests of the new log are written.
        options: The key ring, if encrypted segments contain an end offset.
        progress: See `BucketTarget.create`.

    Raises:
        InvalidRequestError: The requested records don't exist any more (compaction, deleted
            topics), or the place isn't empty.
        OffsetOutOfRangeError: Retention has deleted requested records.
        UnknownTopicError: A topic or partition does not exist.
        DataCorruptionError: An object is damaged.
        StorageUnavailableError: The store does not answer, or refuses the request.
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
        point, new = plan_fork(log, target, log_id, wanted, keyring=keyring)
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
    # With a slash, because s3://bucket/log does not contain s3://bucket/log2.
    one, other = source.url.rstrip("/") + "/", target.url.rstrip("/") + "/"
    if one.startswith(other) or other.startswith(one):
        raise InvalidRequestError(
            f"{target.url} and {source.url} overlap, because one prefix contains the other: choose "
            "another prefix",
            path=target.url,
        )


def current_state(store: Store) -> DisklessState:
    """Return the state at the head of the log in a store.

    Raises:
        InvalidRequestError: No log.
    """
    entries = EntryReader(store, known_home(store).log_id)
    states = StateObjects(store, lambda: entries.log_id)
    return Head(entries, newer=states.newest).follow()
