"""Delete copies from a bucket, in an order that may be interrupted anywhere.

    DELETE_STARTED      recorded for all copies by one commit: readers of the log ignore them
    manifests           deleted: readers of the bucket alone don't find the copies any more
    logs                deleted
    DELETE_FINISHED     recorded, and the copies are removed from the metadata

After an interruption another process finds DELETE_STARTED and continues; missing objects are
ignored. Before the deletion, the log start must have been raised above the copies, or other copies
must contain their offsets: see plan.unreferenced_segments.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sparklog.clock import Clock
from sparklog.storage.segment_store import SegmentStore
from sparklog.tiered.remote_log_metadata.topic import publish
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

if TYPE_CHECKING:
    from sparklog.logdir.commit_log import LogDirCommits

STEP: Final = 500
"""Copies per step: some requests, and two commits."""


def delete_copies(
    commits: "LogDirCommits",
    clock: Clock,
    store: SegmentStore[RemoteSegment],
    copies: Sequence[RemoteSegment],
    *,
    check: Callable[[], None] = lambda: None,
) -> Iterator[RemoteSegment]:
    """Delete copies in any state. Yield each copy when DELETE_FINISHED is recorded.

    `check` is called before each step, including those of `store`; an error that it raises (a lost
    lease) ends the deletion.
    Raises: StorageUnavailableError: the copies remain in DELETE_STARTED, for a later call.
    """
    for first in range(0, len(copies), STEP):
        step = copies[first : first + STEP]
        check()
        begun = [s.become(SegmentState.DELETE_STARTED, clock()) for s in step]
        fresh = [s for s, before in zip(begun, step, strict=True) if s.state is not before.state]
        if fresh:
            publish(commits, clock, fresh)
        store.delete(begun, check=check)
        check()
        done = [s.become(SegmentState.DELETE_FINISHED, clock()) for s in begun]
        publish(commits, clock, done)
        yield from done
