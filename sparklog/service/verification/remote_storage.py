"""Checks a log dir's files on remote storage: the URL, and the metadata of copied segments."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sparklog.format.names import partition_dir
from sparklog.fs import FileSystem
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.service.verification.findings import Finding, Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import LogDirState
from sparklog.tiered.remote_log_metadata.topic import METADATA
from sparklog.tiered.settings import read_settings, settings_fault, settings_missing


def check_remote_settings(fs: FileSystem, log_dir_state: LogDirState, out: Findings) -> None:
    """Report a damaged `sparklog.remote`, or a missing one if the log has copied segments."""
    home, state = log_dir_state.home, log_dir_state.state
    fault = settings_fault(fs, home)
    if fault is not None:
        severity = Severity.DIFFERENCE if fault.is_repairable else Severity.DAMAGE
        fix = FixKind.REMOTE if fault.is_repairable else None
        out.add(severity, fault.path, fault.what, fix=fix)
    elif state is not None and state.ends.get(METADATA) and read_settings(fs, home) is None:
        error = settings_missing(home)
        out.add(Severity.DAMAGE, error.path, error.reason)


def with_rebuild(found: Iterable[Finding], home: str) -> Iterator[Finding]:
    """Add the command that rebuilds damaged metadata of copied segments to its findings."""
    metadata = os.sep + partition_dir(REMOTE_METADATA, 0)
    for finding in found:
        if finding.severity is Severity.DAMAGE and metadata in finding.file and not finding.fix:
            what = f"{finding.what}; or rebuild it from the bucket: `sparklog tier rebuild {home}`"
            yield replace(finding, what=what)
        else:
            yield finding
