"""The housekeeping step of a round (`sparklog.logdir.housekeeping`), reported as sentences."""

from collections.abc import Iterator

from sparklog.common import TopicPartition
from sparklog.log.group_lag import retention_floors
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.group_offsets import GroupFiles
from sparklog.logdir.housekeeping import expire_ledger, expire_producers, prune_snapshots, sweep
from sparklog.pluralize import pluralize
from sparklog.storage.group_store import Groups


def run_housekeeping(
    commits: LogDirCommits, *, now_ms: int, ledger_retention_ms: int, dry_run: bool
) -> Iterator[str]:
    """Expire ledger segments, idle producers and silent readers, and remove dead staged files.

    Yields: a sentence for each kind of thing that was removed, or would be in a dry run.
    """
    would = "would be " if dry_run else ""
    if ledger_retention_ms >= 0:
        old = expire_ledger(
            commits, retention_ms=ledger_retention_ms, now_ms=now_ms, dry_run=dry_run
        )
        if old:
            yield f"{pluralize(len(old), 'segment')} of the commit ledger {would}removed"
    if not dry_run:
        idle = expire_producers(commits, now_ms=now_ms)
        if idle:
            yield f"{pluralize(idle, 'idle producer')} forgotten"
    stray = prune_snapshots(commits, dry_run=dry_run)
    if stray:
        yield f"{pluralize(len(stray), 'producer snapshot')} without a segment {would}removed"
    staged = sweep(commits, now_ms=now_ms, dry_run=dry_run)
    if staged:
        yield f"{pluralize(len(staged), 'staged file')} that nobody will commit {would}removed"
    silent = Groups(GroupFiles(commits.fs, commits.home)).expire(
        now_ms=now_ms, retention_ms=commits.options.offsets_retention_ms, dry_run=dry_run
    )
    for group in sorted({reader.group for reader in silent}):
        yield f"reader {group} {would}forgotten: silent for offsets.retention.minutes"


def group_retention_floors(commits: LogDirCommits, *, now_ms: int) -> dict[TopicPartition, int]:
    """Return the offsets at which registered readers stop retention."""
    return retention_floors(
        commits.state,
        Groups(GroupFiles(commits.fs, commits.home)).readers(),
        now_ms=now_ms,
        retention_ms=commits.options.offsets_retention_ms,
    )
