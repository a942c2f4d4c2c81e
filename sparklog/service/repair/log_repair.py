"""Carries out the fixes that a verification found, under locks that keep other processes out.

A log that is open elsewhere or was left by a crash is opened as any writer opens it, which also
recovers it. A closed log, or the log of a stopped broker, is not opened: the repair only acquires
its locks. Afterwards a closed log is still closed, and the broker can start on its log as before.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import DataCorruptionError, LogLockedError, SparklogError
from sparklog.format.checkpoint_files import parse_offsets
from sparklog.fs import FileSystem, read_bytes
from sparklog.logdir.broker_lockout import KAFKA_LOCK_NAME, is_marked_open, lock_out_brokers
from sparklog.logdir.closing import close_commits
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.high_watermarks import publish
from sparklog.logdir.ledger import LEDGER
from sparklog.logdir.lock import LOCK_NAME, LogLock, State
from sparklog.logdir.offset_checkpoints import (
    CLEANER,
    HIGH_WATERMARK,
    RECOVERY_POINT,
    closed_offsets,
    write_offsets,
)
from sparklog.logdir.opening import open_commits
from sparklog.logdir.quarantined_files import QuarantinedFiles
from sparklog.logdir.recovery.redo import publish_all, write_starts
from sparklog.logdir.topics_file import write_topics
from sparklog.service.repair.derived_files import DerivedFiles
from sparklog.service.repair.ledger_repair import LedgerRepair
from sparklog.service.verification.findings import Finding, FixKind
from sparklog.service.verification.log_dir_state import (
    ExpectedPartition,
    LogDirState,
    Offsets,
    Situation,
)
from sparklog.tiered.settings import restore_settings

_GENERAL: Final = (
    FixKind.CHECKPOINT, FixKind.WATERMARKS, FixKind.TOPICS, FixKind.REMOTE, FixKind.OPEN,
    FixKind.COMMIT_LEDGER,
)  # fmt: skip
# Foreign files first. A snapshot is rebuilt from older snapshots, an index from snapshots.
_ORDER: Final = (
    FixKind.ASIDE, FixKind.TAIL, FixKind.SEGMENT_ASIDE, FixKind.METADATA, FixKind.SNAPSHOT,
    FixKind.INDEXES, FixKind.EPOCHS,
)  # fmt: skip


@dataclass(slots=True)
class LogRepair:
    """A repair of a log. `parts` has the partitions and their expected state."""

    fs: FileSystem
    clock: Clock
    options: LogOptions
    log_dir_state: LogDirState
    parts: Mapping[TopicPartition, ExpectedPartition]
    findings: Sequence[Finding]
    done: list[str] = field(default_factory=list)

    def run(self) -> str | None:
        """Carry out all fixes. Return why it was refused, or None."""
        situation = self.log_dir_state.situation
        try:
            if situation is Situation.RUNNING:
                return "a Kafka broker runs on this directory; stop it first"
            if situation in (Situation.OPEN, Situation.CRASHED):
                self._in_session()
            else:
                self._closed()
        except SparklogError as error:
            return str(error)
        return None

    def repair_ledger(self) -> str | None:
        """Repair the commit ledger only. Return why it was refused, or None.

        All other checks compare with the ledger, so the log must be verified again after this.
        """
        situation = self.log_dir_state.situation
        if situation is Situation.OPEN:
            return (
                "the log is open, and its commit ledger is damaged: end its queries, services and "
                "other writers, then verify the log again"
            )
        try:
            with self._locked(left_open=situation is Situation.CRASHED) as lock:
                page = lock.read()
                repair = LedgerRepair(
                    self.fs, self.clock, self.log_dir_state,
                    was_crash=situation is Situation.CRASHED, done=self.done,
                )  # fmt: skip
                if page is not None and situation is Situation.CRASHED:
                    # The repair makes the page's content obsolete.
                    lock.write(replace(page, state=State.FULL))
                repair.run()
        except SparklogError as error:
            return str(error)
        return None

    def _by_partition(self) -> dict[TopicPartition, list[Finding]]:
        grouped: dict[TopicPartition, list[Finding]] = {}
        for finding in self.findings:
            if finding.fix is None or finding.fix.kind in _GENERAL:
                continue
            if finding.topic is not None and finding.partition is not None:
                key = TopicPartition(finding.topic, finding.partition)
                grouped.setdefault(key, []).append(finding)
        return grouped

    def _of_the_log(self, kind: FixKind) -> list[str]:
        """Return the files of the log dirs that need this fix."""
        return [f.file for f in self.findings if f.fix is not None and f.fix.kind is kind]

    def _rebuild(
        self, key: TopicPartition, part: ExpectedPartition, findings: list[Finding]
    ) -> None:
        state = self.log_dir_state.state
        topic = None if state is None else state.topics.get(key.topic)
        derived = DerivedFiles(
            self.fs,
            part,
            os.path.dirname(part.path),
            self._quarantine,
            self.done,
            clock=self.clock,
            expiration_ms=self.options.producer_id_expiration_ms,
        )
        fixes = [finding.fix for finding in findings if finding.fix is not None]
        for fix in sorted(fixes, key=lambda fix: (_ORDER.index(fix.kind), fix.offset)):
            derived.apply_fix(fix, None if topic is None else topic.id)

    @property
    def _quarantine(self) -> QuarantinedFiles:
        return QuarantinedFiles(self.fs, self.clock(), self.done)

    def _set_aside(self) -> None:
        """Move foreign files in the log dirs to quarantine; restore the remote storage settings."""
        if damaged := self._of_the_log(FixKind.REMOTE):
            restore_settings(self.fs, self.log_dir_state.home)
            self.done += [f"rebuilt {path}" for path in damaged]
        for finding in self.findings:
            if finding.topic is None and finding.fix and finding.fix.kind is FixKind.ASIDE:
                self._quarantine.move(finding.file, os.path.dirname(finding.file))

    # -- logs that can be opened

    def _in_session(self) -> None:
        commits = open_commits(self.fs, self.clock, self.log_dir_state.directories, self.options)
        try:
            if self.log_dir_state.situation is Situation.CRASHED:
                self.done.append(f"recovered {commits.home} by opening it")
            for key, findings in self._by_partition().items():
                with self._quiet(commits):
                    part = self._part_now(commits, key)
                    if part is not None:
                        self._rebuild(key, part, findings)
            with self._quiet(commits):
                self._render(commits)
            self._set_aside()
        finally:
            close_commits(commits)

    @contextlib.contextmanager
    def _quiet(self, commits: LogDirCommits) -> Iterator[None]:
        """Hold the write lock, so that no file changes within the context.

        The next holder of the lock reopens every file, even if this process dies in this context.
        """
        with commits.exclusive():
            commits.manager.idle()
            try:
                yield
            finally:
                commits.manager.forget()

    def _part_now(self, commits: LogDirCommits, key: TopicPartition) -> ExpectedPartition | None:
        """Return a partition's state under the lock, unless its topic was deleted."""
        part, state = self.parts.get(key), commits.state
        if part is None:
            return None
        if key == LEDGER:
            return replace(part, end=commits.ledger.end)
        if key not in state.ends or commits.partition_path(*key) != part.path:
            return None
        return part.in_state(state)

    def _render(self, commits: LogDirCommits) -> None:
        """Write the files whose content follows from the ledger. Requires the write lock."""
        write_topics(self.fs, commits.home, commits.state)
        write_starts(commits.manager)
        publish_all(commits.manager)
        ends = {**commits.state.ends, LEDGER: commits.ledger.end}
        points = {key: part.recovery_point for key, part in self.parts.items()}
        for path in self._of_the_log(FixKind.CHECKPOINT):
            directory, name = os.path.split(path)
            mine = {k: e for k, e in ends.items() if self._dir_of(k) == directory}
            if name == HIGH_WATERMARK:
                self._checkpoint(directory, name, mine)
            elif name == RECOVERY_POINT:
                known = {k: min(points.get(k, 0), end) for k, end in mine.items()}
                self._checkpoint(directory, name, known)
            elif name == CLEANER:
                self._checkpoint(directory, name, self._credible(path, mine))
            else:
                self.done.append(f"rebuilt {path}")
        for kind in (FixKind.WATERMARKS, FixKind.TOPICS):
            self.done += [f"rebuilt {path}" for path in self._of_the_log(kind)]

    def _dir_of(self, key: TopicPartition) -> str:
        return os.path.dirname(self.log_dir_state.path(key))

    # -- closed logs, which stay closed

    def _closed(self) -> None:
        with self._locked():
            for key, findings in self._by_partition().items():
                if key in self.parts:
                    self._rebuild(key, self.parts[key], findings)
            log_dir_state, state = self.log_dir_state, self.log_dir_state.state
            if state is not None and self._of_the_log(FixKind.TOPICS):
                write_topics(self.fs, log_dir_state.home, state)
                self.done += [f"rebuilt {path}" for path in self._of_the_log(FixKind.TOPICS)]
            if state is not None and self._of_the_log(FixKind.WATERMARKS):
                ends = {**state.ends, LEDGER: log_dir_state.ledger_end}
                publish(
                    self.fs,
                    log_dir_state.home,
                    ends,
                    state.starts,
                    durable=log_dir_state.ledger_end,
                )
                self.done += [f"rebuilt {path}" for path in self._of_the_log(FixKind.WATERMARKS)]
            for path in self._of_the_log(FixKind.CHECKPOINT):
                self._closed_checkpoint(*os.path.split(path))
            self._set_aside()

    @contextlib.contextmanager
    def _locked(self, *, left_open: bool = False) -> Iterator[LogLock]:
        """Keep brokers and writers out without opening the log; remove the lock files at the end.

        `left_open` means that the log was not closed before; it is not closed by the repair either.
        """
        fs, home = self.fs, self.log_dir_state.home
        there = self.log_dir_state.dirs.present
        paths = [os.path.join(d, KAFKA_LOCK_NAME) for d in there]
        paths.append(os.path.join(home, LOCK_NAME))
        made = [path for path in paths if not fs.exists(path)]
        with contextlib.ExitStack() as stack:
            for file in lock_out_brokers(fs, there):
                stack.callback(file.close)
            lock = LogLock(fs, home, timeout_ms=self.options.lock_timeout_ms)
            stack.callback(lock.close)
            lock.join()
            lock.acquire()
            if is_marked_open(fs, home) != left_open or not lock.is_last():
                raise LogLockedError(
                    f"{home} was opened by another process during the repair; verify it again",
                    path=home,
                )
            try:
                yield lock
            finally:
                for path in made:
                    with contextlib.suppress(FileNotFoundError):
                        fs.unlink(path)

    def _closed_checkpoint(self, directory: str, name: str) -> None:
        log_dir_state, state = self.log_dir_state, self.log_dir_state.state
        ends = {k: p.end for k, p in self.parts.items() if self._dir_of(k) == directory}
        path = os.path.join(directory, name)
        if log_dir_state.situation is Situation.CLOSED and state is not None and name != CLEANER:
            self._checkpoint(directory, name, closed_offsets(ends, state.starts)[name])
            return
        known = self._credible(path, ends)
        if name == HIGH_WATERMARK:
            known = ends | known
        self._checkpoint(directory, name, known)

    def _credible(self, path: str, ends: Offsets) -> Offsets:
        """Return the entries of a checkpoint that can be true; empty if it can't be read."""
        try:
            raw = read_bytes(self.fs, path)
            known = parse_offsets(raw, path=path)
        except (DataCorruptionError, FileNotFoundError):
            return {}
        return {k: at for k, at in known.items() if 0 <= at <= ends.get(k, at)}

    def _checkpoint(self, directory: str, name: str, offsets: Offsets) -> None:
        path = os.path.join(directory, name)
        with contextlib.suppress(FileNotFoundError):
            try:
                parse_offsets(read_bytes(self.fs, path), path=path)
            except DataCorruptionError:
                self._quarantine.move(path, directory)
        write_offsets(self.fs, directory, name, offsets)
        self.done.append(f"rebuilt {path}")
