"""Detect missing batch numbers of a writer: batches skipped, or lost by a restore.

The log can't distinguish the two cases, because foreachBatch may skip a batch. A gap is therefore a
warning, given once per writer and open log.
"""

import logging
from typing import Final

from sparklog.storage.commits import CommitLog

_LOGGER: Final = logging.getLogger(__name__)


def warn_of_gap(commits: CommitLog, writer: str, batch: int) -> None:
    """Warn if micro-batches before `batch` are missing in the log.

    The caller must have acquired the lock.
    """
    last = commits.state.writers.get(writer)
    if last is None or batch <= last.batch + 1:
        return
    warned_writers = commits.reported_gaps
    if writer not in warned_writers:
        warned_writers.add(writer)
        _LOGGER.warning(
            "%s: writer %s continues with micro-batch %d, but its last batch in this log is %d: "
            "either it wrote nothing in between, or the log was restored to an earlier state and "
            "those rows are lost. With `sparklog checkpoint reset CHECKPOINT --to %d --log LOG`, "
            "its query computes them again, and also repeats what it has written since",
            commits.home, writer, batch, last.batch, last.batch,
        )  # fmt: skip
