"""Checks a log dir's files on remote storage: the URL, and the metadata of copied segments."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sparklog.clock import system_clock
from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.errors import SparklogError
from sparklog.format.names import partition_dir
from sparklog.fs import FileSystem
from sparklog.log.due_segments import Tier
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.view import LogDirView
from sparklog.service.verification.findings import Finding, Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import LogDirState
from sparklog.tiered.copying.plan import copied_ranges
from sparklog.tiered.remote_log_metadata.topic import METADATA, RemoteLogMetadataConsumer
from sparklog.tiered.settings import read_settings, settings_fault, settings_missing


def check_remote_settings(fs: FileSystem, log_dir_state: LogDirState, out: Findings) -> None:
    """Report a damaged `sparklog.remote`, or a missing file if the log has copied segments."""
    home, state = log_dir_state.home, log_dir_state.state
    fault = settings_fault(fs, home)
    if fault is not None:
        severity = Severity.DIFFERENCE if fault.is_repairable else Severity.DAMAGE
        fix = FixKind.REMOTE if fault.is_repairable else None
        out.add(severity, fault.path, fault.what, fix=fix)
    elif state is not None and state.ends.get(METADATA) and read_settings(fs, home) is None:
        error = settings_missing(home)
        out.add(Severity.DAMAGE, error.path, error.reason)


def check_known_copies(fs: FileSystem, log_dir_state: LogDirState, out: Findings) -> None:
    """Report offsets that neither a local segment nor a known copy contains.

    The state is read before the metadata, and the metadata before the log starts, so that copies
    which expire in between are not reported.
    Cost: a pass over the metadata topic, if a partition's first segments are only remote.
    """
    state = log_dir_state.state
    if state is None or not state.local_starts or METADATA.topic not in state.topics:
        return
    directories = log_dir_state.directories
    try:
        cache = RemoteLogMetadataConsumer(LogDirView(fs, directories), system_clock).catch_up()
        spans = LogDirView(fs, directories).spans(list(state.local_starts))
    except (SparklogError, FileNotFoundError):
        return  # other checks report metadata and topics that cannot be read
    for (name, p), local in sorted(state.local_starts.items()):
        copies = cache.readable(TopicIdPartition(state.topics[name].id, p))
        start, _ = spans[TopicPartition(name, p)]
        if not Tier(copied_ranges(copies)).holds(start, local):
            out.add(
                Severity.DAMAGE,
                log_dir_state.path(METADATA),
                f"the metadata names no copies that hold offsets [{start}, {local}) of {name}-{p}, "
                "and no local segment holds them; restore the metadata from a copy",
            )


def with_rebuild(found: Iterable[Finding], home: str) -> Iterator[Finding]:
    """Add the command that rebuilds damaged metadata of copied segments to its findings."""
    metadata = os.sep + partition_dir(REMOTE_METADATA, 0)
    for finding in found:
        if finding.severity is Severity.DAMAGE and metadata in finding.file and not finding.fix:
            what = f"{finding.what}; or rebuild it from the bucket: `sparklog tier rebuild {home}`"
            yield replace(finding, what=what)
        else:
            yield finding
