"""Deletes copies from a bucket, in an order that may be cut anywhere.

    DELETE_STARTED      recorded for all of them by one commit: no reader looks for them any more
    the manifests go    from here on a reader of the bucket alone doesn't find them either
    the logs go
    DELETE_FINISHED     recorded, and they are forgotten

Whoever takes over finds DELETE_STARTED and goes on; what is gone already is fine. The log start
must have been raised above them before, or others must hold their offsets: see plan.surplus.
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
"""Copies that go in one step: some requests, and two commits."""


def delete_copies(
    session: "LogDirCommits",
    clock: Clock,
    store: SegmentStore[RemoteSegment],
    copies: Sequence[RemoteSegment],
    *,
    check: Callable[[], None] = lambda: None,
) -> Iterator[RemoteSegment]:
    """Delete copies in any state, and yield each in DELETE_FINISHED once that is recorded.

    `check` is called before each step, those of `store` included; what it raises (a lease that is
    lost) ends it there.
    Raises: StorageUnavailableError: they stay in DELETE_STARTED, for another time.
    """
    for first in range(0, len(copies), STEP):
        some = copies[first : first + STEP]
        check()
        begun = [s.become(SegmentState.DELETE_STARTED, clock()) for s in some]
        fresh = [s for s, before in zip(begun, some, strict=True) if s.state is not before.state]
        if fresh:
            publish(session, clock, fresh)
        store.delete(begun, check=check)
        check()
        done = [s.become(SegmentState.DELETE_FINISHED, clock()) for s in begun]
        publish(session, clock, done)
        yield from done
