"""Back-pressure: a writer merges extents itself if no service does.

Each commit adds an extent to each of its partitions. A service merges them. Without a service,
states and the work of readers would grow with every commit. Therefore a writer that finds too many
extents in a partition that it has just written merges them before its call returns. The writer logs
this once, and is slowed down by the merge, which costs about a GET per earlier commit. Its own
commit is complete by then, and a failure of the merge does not affect it. A writer has no term of
its own. Its merge uses the log's term and is void once a service takes over. The sweep of that
service then deletes the segments by their term.
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
_AGAIN: Final = 8  # a check without a merge is repeated after an eighth more extents
_NEVER_MS: Final = 1 << 62


class BackPressure:
    """Limits the number of extents of a log, on behalf of a writer. Thread-safe.

    Args:
        max_extents: A partition with fewer extents is not merged.
        threads: The number of concurrent requests.
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
        # With the log's present term, so that merges are void once a service begins its own term.
        self._merger = Merger(
            self._log, term=lambda: self._log.state.term, keyring=keyring, threads=threads
        )
        self._options = UpkeepOptions(merge_interval_ms=_NEVER_MS, merge_max_extents=max_extents)
        self._left: dict[TopicPartition, int] = {}  # extents that the last check did not merge
        self._told = False

    def relieve(self, keys: Collection[TopicPartition]) -> None:
        """Merge the extents of the first of these partitions that has too many extents.

        Never raises. Cost: usually only a check of the state.

        Args:
            keys: The partitions that this process has just written.
        """
        state = self._log.state
        for key in keys:
            count = len(state.extents.get(key, ()))
            # The second condition: extents that the last check could not merge must not cause
            # another check after every commit.
            if count <= self._max or count < self._left.get(key, 0) * (1 + 1 / _AGAIN):
                continue
            self._tell(key, count)
            try:
                self._merge(key, state)
            except (ConflictError, LeaseLostError) as error:
                _LOGGER.debug("%s: another process merges its extents: %s", key, error)
            except (SparklogError, OSError) as error:
                _LOGGER.warning("%s: its extents could not be merged: %s", key, error)
            self._left[key] = len(self._log.state.extents.get(key, ()))
            return  # the next commits merge the other partitions

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
                "%s: %s has %d extents, and no service merges them. This writer merges them from "
                "time to time, which slows it down (diskless.backpressure.max.extents=%d). Run "
                "`sparklog serve` for this log",
                self._log.commits.home, key, count, self._max,
            )  # fmt: skip
