"""Back-pressure: a writer merges what piles up where no service does.

Each commit adds an extent to each of its partitions. A service merges them; without one a state
would grow with every commit, and so would what readers fetch. So a writer that finds too many of
them in a partition that it has just written merges them itself, before its call returns: it says so
once, and is slowed down by what the merge takes, which is about a GET for each commit that came
before. Its commit is made by then, and no failure here touches it.

A writer takes no term. Its merge has the log's own: void once a service takes over, whose sweep
then finds by its term what was put in vain.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.merge_plan import Merge, due_merges
from sparklog.diskless.merging import Merger
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.service_log import ConflictError, ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.errors import SparklogError
from sparklog.storage.lease import LeaseLostError
from sparklog.tiered.keyring import Keyring

_LOGGER: Final = logging.getLogger("sparklog")
MERGE_THREADS: Final = 8
_AGAIN: Final = 8  # a look that merged nothing is repeated when an eighth more has come
_NEVER_MS: Final = 1 << 62


class BackPressure:
    """Keeps the number of a log's extents within bounds, as its writer. Threads may share it.

    `max_extents`: so many of a partition are left alone. `threads`: requests at the same time.
    """

    def __init__(
        self,
        commits: DisklessCommits,
        clock: Clock,
        *,
        max_extents: int,
        keyring: Keyring | None = None,
        threads: int = 1,
    ) -> None:
        self._log, self._clock, self._max = ServiceLog(commits), clock, max_extents
        self._merger = Merger(
            self._log, term=lambda: self._log.state.term, keyring=keyring, threads=threads
        )
        self._options = UpkeepOptions(merge_interval_ms=_NEVER_MS, merge_max_extents=max_extents)
        self._left: dict[TopicPartition, int] = {}  # extents that the last look found and left
        self._told = False

    def relieve(self, keys: Collection[TopicPartition]) -> None:
        """Merge what is too much in one of these partitions, which were just written.

        Raises nothing. Cost: nothing but a look at the state, mostly.
        """
        state = self._log.state
        for key in keys:
            count = len(state.extents.get(key, ()))
            if count <= self._max or count < self._left.get(key, 0) * (1 + 1 / _AGAIN):
                continue
            self._tell(key, count)
            try:
                self._merge(key, state)
            except (ConflictError, LeaseLostError) as error:
                _LOGGER.debug("%s: somebody else merges it: %s", key, error)
            except (SparklogError, OSError) as error:
                _LOGGER.warning("%s: its pieces could not be merged: %s", key, error)
            self._left[key] = len(self._log.state.extents.get(key, ()))
            return  # the others have their turn with the next commits

    def _merge(self, key: TopicPartition, state: DisklessState) -> None:
        for merge in self._due(key, state):
            self._merger.merge(merge, state, self._merger.reader(state, merge.sources))

    def _due(self, key: TopicPartition, state: DisklessState) -> Iterator[Merge]:
        alone = replace(state.log, topics={key.topic: state.log.topics[key.topic]})
        due = due_merges(
            replace(state, log=alone), self._options, now_ms=self._clock(),
            time_of=self._log.time_of,
        )  # fmt: skip
        return (merge for merge in due if merge.key == key)

    def _tell(self, key: TopicPartition, count: int) -> None:
        if not self._told:
            self._told = True
            _LOGGER.warning(
                "%s: %s has %d pieces, and no service merges them: this writer does so now and "
                "then, which slows it down (diskless.backpressure.max.extents=%d). Run "
                "`sparklog serve` for this log",
                self._log.commits.home, key, count, self._max,
            )  # fmt: skip
