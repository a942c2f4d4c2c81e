"""Retired segments and deleted topics of log dirs, until file.delete.delay.ms has passed."""

import contextlib
import os
from collections.abc import Iterable

from sparklog.log.admin import purge_topics
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.deleted_files import deleted_files, unlink, waiting
from sparklog.logdir.free_space import below_floor
from sparklog.logdir.paths import is_within
from sparklog.logdir.recovery.redo import settle_directories
from sparklog.storage.lease import Lease
from sparklog.storage.round_report import Report


class RetiredFiles:
    """Files renamed to `.deleted`, which readers may still have open. Thread-safe."""

    def __init__(self, commits: LogDirCommits, lease: Lease) -> None:
        self._commits, self._lease = commits, lease
        self._pending: dict[str, int] = {}  # path -> when it may be unlinked (ms)

    def schedule(self, paths: Iterable[str], when_ms: int) -> None:
        self._pending |= dict.fromkeys(paths, when_ms)

    def adopt(self, now_ms: int) -> None:
        """Schedule the deletion of `.deleted` files that any process has left."""
        with self._commits.exclusive():
            self._pending |= waiting(self._commits.manager, now_ms=now_ms)
            # The process that had to remove the directories of deleted topics may have died.
            settle_directories(self._commits.manager)

    @property
    def next_ms(self) -> float:
        """When the next retired segment or deleted topic may be removed."""
        topics = [one.until_ms for one in list(self._commits.state.deleted.values())]
        return min([*list(self._pending.values()), *topics], default=float("inf"))

    def purge(self, report: Report) -> None:
        """Unlink retired segments after their file.delete.delay.ms, or at once on a full disk."""
        pending = list(self._pending.items())  # a copy: the cleaner's thread adds to it
        full = [one.directory for one in below_floor(self._commits.manager)]
        due = sorted(
            path
            for path, when in pending
            if when <= report.time_ms or any(is_within(path, directory) for directory in full)
        )
        for path in due:
            # The lease is checked for each file: the unlinks of a large round may take long.
            if not report.dry_run:
                self._lease.check()
            with contextlib.suppress(FileNotFoundError):  # opening a log removes such files, too
                report.purged_bytes += unlink(self._commits.fs, path, dry_run=report.dry_run)
            if not report.dry_run:
                del self._pending[path]
            report.purged.append(path)
        self._purge_topics(report)

    def _purge_topics(self, report: Report) -> None:
        """Remove deleted topics for good after their file.delete.delay.ms."""
        commits, now_ms = self._commits, report.time_ms
        known = list(commits.state.deleted.values())  # a copy: other threads may change it
        due = [one for one in known if one.until_ms <= now_ms]
        if not due:
            return
        # Listed before the purge, because the report names the files and their sizes.
        held = {one.id: deleted_files(commits.manager, one) for one in due}
        if not report.dry_run:
            self._lease.check()
            due = purge_topics(commits, lambda one: one.until_ms <= now_ms)
        for one in due:
            files = held.get(one.id, {})
            report.purged += sorted({os.path.dirname(path) for path in files})
            report.purged_bytes += sum(files.values())
            would = "would be removed" if report.dry_run else "is removed for good"
            report.notes.append(
                f"the deleted topic {one.name} (id {one.id}) {would}: "
                f"file.delete.delay.ms={one.delay_ms} has passed"
            )
