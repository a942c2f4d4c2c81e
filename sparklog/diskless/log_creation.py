"""Creates a log in a bucket from remote segments, or as a fork of another log.

`fork` takes URLs, `fork_stores` any stores, for example a backup.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

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
from sparklog.log.fork_points import ForkPointRequest
from sparklog.log.topic_names import new_topic_id
from sparklog.progress import Progress, shows_progress
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.opening import open_objects
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.target import open_store


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


@shows_progress("restoring")
def restore_tier(
    url: str,
    new_url: str,
    *,
    topics: Collection[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    new_storage_options: Mapping[str, Any] | None = None,
    options: RemoteOptions | None = None,
    threads: int = 8,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock = system_clock,
) -> MadeLog:
    """Create a log at `new_url` from the remote segments at `url`; it continues at their end.

    Args:
        topics: all by default. storage_options: for both URLs, unless there are
            `new_storage_options`. options: the key ring, if manifests are encrypted.
    Topics keep their ids, configs and leader epochs, and their records until retention.* is set.
    Raises: InvalidRequestError: `new_url` isn't empty, or contains the import of another call;
        UnknownTopicError; DataCorruptionError: copies are missing or damaged;
        StorageUnavailableError. No log exists then; call again to continue.
    Cost: a request per copy that is examined, and one or two more per copied object.
    """
    watch = stopwatch()
    source = open_store(url, storage_options)
    target = open_store(new_url, new_storage_options or storage_options)
    check_apart(source, target)
    if read_home(source) is not None:
        raise InvalidRequestError(
            f"{url} is a log, not remote segments: fork it (`sparklog fork`)", path=url
        )
    objects = open_objects(lambda: source, options or RemoteOptions())
    suffix = "" if topics is None else f", topics {', '.join(sorted(set(topics)))}"

    def plan(log_id: str) -> NewLog:
        return plan_tier_import(
            objects, target, log_id, topics=topics, threads=threads, clock=clock
        )

    new = make_log(
        target, f"the tier at {source.url}{suffix}", plan, threads, progress, clock, dry_run=dry_run
    )
    return describe_log(new, target, watch(), dry_run=dry_run)


@shows_progress("forking")
def fork(
    url: str,
    new_url: str,
    *,
    writer: str | None = None,
    batch: int | None = None,
    time_ms: int | None = None,
    offsets: Mapping[str, Mapping[int, int]] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    new_storage_options: Mapping[str, Any] | None = None,
    options: RemoteOptions | None = None,
    threads: int = 8,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock = system_clock,
) -> MadeLog:
    """Create a log at `new_url` with the state of the log at `url` at one of its commits.

    Args: writer, batch, time_ms, offsets: as for a log dir's fork (`sparklog.logdir.forking`).
        options: the key ring, if encrypted segments contain an end offset.
    Raises: InvalidRequestError, OffsetOutOfRangeError: the requested records don't exist any more
        (retention, compaction, deleted topics), or `new_url` isn't empty; UnknownTopicError;
        DataCorruptionError; StorageUnavailableError. No log exists then.
    Cost: a GET per entry up to the point, a copy by the store per object, and a pass over each
        segment that contains an end offset.
    """
    return fork_stores(
        open_store(url, storage_options),
        open_store(new_url, new_storage_options or storage_options),
        ForkPointRequest(writer=writer, batch=batch, time_ms=time_ms, offsets=offsets),
        options=options, threads=threads, dry_run=dry_run, progress=progress, clock=clock,
    )  # fmt: skip


@shows_progress("forking")
def fork_stores(
    source: Store,
    target: Store,
    wanted: ForkPointRequest,
    *,
    origin: str | None = None,
    log_id: str | None = None,
    adapt: Callable[[NewLog], NewLog] = lambda new: new,
    finish: Callable[[], object] = lambda: None,
    options: RemoteOptions | None = None,
    threads: int = 8,
    dry_run: bool = False,
    progress: Progress | None = None,
    clock: Clock = system_clock,
) -> MadeLog:
    """Create a log in `target` with the state of the log in `source` at a commit; see `fork`.

    Args:
        origin: a second call must pass the same to complete what this call left.
        log_id: of the new log, if no other process can use the target; random by default.
        adapt: changes how objects and manifests of the new log are written.
        finish: called once the log exists. If it fails, or is never called, a second call completes
            the log and calls it.
    """
    watch = stopwatch()
    check_apart(source, target)
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
            log, target, log_id, wanted, keyring=keyring, dry_run=dry_run, clock=clock
        )
        points.append(point)
        return adapt(new)

    new = make_log(
        target, origin or f"the fork of {source.url} at {_words(wanted)}", plan, threads, progress,
        clock, log_id=log_id, finish=finish, dry_run=dry_run,
    )  # fmt: skip
    point = points[-1]
    return describe_log(
        new, target, watch(), dry_run=dry_run, ledger_offset=point.count,
        time_ms=point.state.log.time_ms,
    )  # fmt: skip


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


def make_log(
    target: Store,
    origin: str,
    plan: Callable[[str], NewLog],
    threads: int,
    progress: Progress | None,
    clock: Clock,
    *,
    log_id: str | None = None,
    finish: Callable[[], object] = lambda: None,
    dry_run: bool = False,
) -> NewLog:
    """Create the log that `plan` returns for a log id; `origin` describes its source.

    Raises: as `LogImport.claim` and `run`.
    """
    home = LogImport(
        target,
        origin,
        write_state=_write_state,
        create_home=lambda store, log_id: place_home(store, log_id, clock).log_id,
        threads=threads,
    )
    is_log = home.claim(dry_run=dry_run)
    try:
        new = plan(known_home(target).log_id if is_log else log_id or new_topic_id())
    except SparklogError as error:  # release the prefix, so that another call can use it
        if not isinstance(error, StorageUnavailableError):
            home.release()
        raise
    if dry_run:
        return new
    if is_log:
        home.complete(new, finish=finish)
    else:
        if log_id is None:  # else no other process can use the target
            check_capabilities(target)
        home.run(new, progress=progress, finish=finish)
    return new


def _write_state(store: Store, state: DisklessState) -> None:
    StateObjects(store, lambda: state.log_id).write(state)


def describe_log(
    new: NewLog, target: Store, took_ms: int, *, dry_run: bool = False, **more: int
) -> MadeLog:
    """Return a description of the new log, for people and scripts."""
    snapshot = new.snapshot
    offsets: dict[str, dict[int, tuple[int, int]]] = {}
    for key, end in sorted(snapshot.ends.items()):
        offsets.setdefault(key.topic, {})[key.partition] = snapshot.starts.get(key, 0), end
    return MadeLog(
        path=target.url,
        epoch=snapshot.epoch,
        offsets=offsets,
        writers={name: last.batch for name, last in sorted(snapshot.writers.items())},
        copied_objects=len(new.objects),
        copied_bytes=new.size,
        took_ms=took_ms,
        dry_run=dry_run,
        **more,
    )
