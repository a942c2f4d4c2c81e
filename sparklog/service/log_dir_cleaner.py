"""Cleans compacted topics of log dirs, in the service's threads or in other processes."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
    UnknownTopicError,
)
from sparklog.fs import LOCAL
from sparklog.log.cleaner_options import Throttle
from sparklog.log.rounds import QuarantinedPartitions, report_failed
from sparklog.logdir.cleaning.cleaner import (
    clean_partition,
    compacted_partitions,
    finish,
    plan_job,
)
from sparklog.logdir.cleaning.plan import CleanJob
from sparklog.logdir.cleaning.rewrite import Rewritten, rewrite
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.service.options import ServiceArguments
from sparklog.service.retired_files import RetiredFiles
from sparklog.storage.lease import Lease, LeaseLostError
from sparklog.storage.round_report import Cleanable, CleanReport, Report
from sparklog.storage.topic_state import TopicState

_LOGGER: Final = logging.getLogger("sparklog.service")
_T = TypeVar("_T")


class LogDirCleaner:
    """The `sparklog.log.rounds.CleanerSteps` of log dirs.

    `ServiceArguments.map`, if given, maps the long part of cleaning over jobs elsewhere, for
    example as Spark tasks.
    """

    def __init__(
        self,
        commits: LogDirCommits,
        lease: Lease,
        arguments: ServiceArguments,
        retired: RetiredFiles,
        quarantined: QuarantinedPartitions,
    ) -> None:
        self._commits, self._lease, self._map = commits, lease, arguments.map
        self._options, self._stopping = arguments.options, arguments.stopping
        self._retired, self._quarantined = retired, quarantined
        self._brake: Throttle = arguments.options.cleaner().throttle()

    def compacted(self, now_ms: int) -> Sequence[Cleanable]:
        """Return the compacted partitions with their dirty ratios."""
        return list(compacted_partitions(self._commits, now_ms=now_ms))

    def topics(self) -> Mapping[str, TopicState]:
        """Return the topics. Takes the write lock briefly."""
        with self._commits.exclusive():
            return dict(self._commits.state.topics)

    def clean(self, partitions: Sequence[Cleanable], report: Report) -> None:
        """Clean partitions, several at the same time if the options say so."""
        self._lease.check()
        clean = self._cleaned_here if self._map is None else self._cleaned_elsewhere
        for cleaned in clean(partitions, report):
            report.cleaned.append(cleaned)
            report.locked_ms.append(cleaned.locked_ms_max)
            topic = self._commits.state.topics.get(cleaned.topic)
            delay_ms = topic.parsed().file_delete_delay_ms if topic is not None else 0
            self._retired.schedule(cleaned.retired, report.time_ms + delay_ms)

    def _cleaned_here(
        self, partitions: Sequence[Cleanable], report: Report
    ) -> Iterator[CleanReport]:
        options = self._options

        def clean(partition: Cleanable) -> CleanReport | None:
            return self._attempt(
                partition, report,
                lambda: clean_partition(
                    self._commits, *partition.key, options=options.cleaner(),
                    throttle=self._throttle, now_ms=report.time_ms,
                ),
            )  # fmt: skip

        if options.cleaner_threads <= 1:
            yield from filter(None, map(clean, partitions))
            return
        # The throttle is shared, so that all threads together stay below the limit.
        with ThreadPoolExecutor(options.cleaner_threads, "sparklog-cleaner") as pool:
            yield from filter(None, pool.map(clean, partitions))

    def _cleaned_elsewhere(
        self, partitions: Sequence[Cleanable], report: Report
    ) -> Iterator[CleanReport]:
        assert self._map is not None
        options = self._options.cleaner()
        plan = partial(plan_job, self._commits, options=options, now_ms=report.time_ms)
        planned = [
            (partition, job)
            for partition in partitions
            if (job := self._attempt(partition, report, partial(plan, *partition.key))) is not None
        ]
        jobs = [job for _, job in planned]
        for (partition, job), made in zip(planned, self._map(rewrite_all, jobs), strict=True):
            # The jobs may have taken hours: another service may have started since.
            self._lease.check()
            done = self._attempt(partition, report, partial(finish, self._commits, job, made))
            if done is not None:
                yield done

    def _attempt(self, partition: Cleanable, report: Report, step: Callable[[], _T]) -> _T | None:
        return attempt(
            step, partition.key, partition.topic_id, self._commits, self._quarantined, report
        )

    def _throttle(self, size: int) -> None:
        if self._stopping():
            # `attempt` records all other errors as failures of a partition, and the round would
            # continue.
            raise LeaseLostError("the service is stopping; cleaning continues at its next start")
        self._brake(size)


def rewrite_all(job: CleanJob) -> list[Rewritten]:
    """Rewrite the segments of a job: the long part of cleaning a partition.

    May run in another process that has access to the log dir.
    """
    return list(rewrite(LOCAL, job, job.options.throttle()))


def attempt(
    step: Callable[[], _T],
    key: TopicPartition,
    topic_id: str,
    commits: LogDirCommits,
    quarantined: QuarantinedPartitions,
    report: Report,
) -> _T | None:
    """Do a step in a partition and return the result. Report an error and return None.

    A damaged partition is skipped until the service restarts, as Kafka does with uncleanable
    partitions.

    Raises:
        LeaseLostError: Another service leads now, so the round must end.
    """
    try:
        return step()
    except LeaseLostError:
        raise
    except (SparklogError, OSError) as error:
        # A topic may be deleted while its segments are cleaned. The missing files are no failure
        # then.
        is_gone = isinstance(error, UnknownTopicError)
        is_gone = is_gone or (isinstance(error, FileNotFoundError) and _is_gone(commits, key))
        if is_gone:  # the topic was deleted; a new topic may get its name
            _LOGGER.info("%s: %s", key, error)
        elif isinstance(error, DataCorruptionError | InvalidRequestError):
            quarantined.add(key, topic_id, error, report)
        else:
            report_failed(key, error, report)
    return None


def _is_gone(commits: LogDirCommits, key: TopicPartition) -> bool:
    """Return True if a partition was deleted. Takes the write lock briefly."""
    with contextlib.suppress(SparklogError), commits.exclusive():
        return key not in commits.state.ends
    return False
