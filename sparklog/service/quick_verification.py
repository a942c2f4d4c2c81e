"""`verify(quick=True)`: checks that do not read a log's data and take about a second.

They cover the log's health, and names and sizes of files: segments without indexes, leftovers,
Kafka's checkpoint files. The report lists the omitted checks.
"""

import contextlib
import os
import shlex
from collections.abc import Mapping
from typing import Any

from sparklog.clock import Clock, monotonic_ms
from sparklog.errors import SparklogError
from sparklog.format.names import SNAPSHOT, index_name, log_name, timeindex_name
from sparklog.fs import FileSystem
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.ledger import state_now
from sparklog.logdir.paths import split_path
from sparklog.logdir.segment_files import bases_of, joined
from sparklog.opening import url_of
from sparklog.pluralize import pluralize
from sparklog.service.health import examine
from sparklog.service.verification.findings import (
    Findings,
    FixKind,
    Severity,
    Verification,
    ordered,
)
from sparklog.service.verification.leftover_files import check_log_dir, check_partition_files
from sparklog.service.verification.log_dir_state import (
    NO_LIMIT,
    ExpectedPartition,
    LogDirState,
)
from sparklog.service.verification.offset_checkpoints import read_checkpoints


def verify_quickly(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None,
    options: Mapping[str, object] | None,
    fs: FileSystem,
    clock: Clock,
) -> Verification:
    """Check a log without reading data; see `sparklog.service.verify`.

    Cost: the cost of `examine`, the ledger's newest segment, a listing per partition, and a stat
    per segment.
    """
    began = monotonic_ms()
    health = examine(path, storage_options=storage_options, options=options, fs=fs, clock=clock)
    full = shlex.join(["sparklog", "verify", os.fspath(path)])
    url = url_of(path, fs=fs)
    if url is not None or health.kind == "nothing":
        directories = split_path(path) if url is None else [url]
        report = Verification(directories=directories, situation=health.kind, health=health)
        if health.kind == "archive":
            report.unseen = "the copies of segments; run `sparklog tier verify`"
        elif health.kind != "nothing":
            report.unseen = f"entries, states, extents and manifests: `{full}`"
    else:
        report = _of_log_dirs(fs, split_path(path))
        report.health = health
        report.unseen = (
            f"the contents of {pluralize(report.segments, 'segment')} and their indexes, the "
            f"ledger's history, producer snapshots: `{full}`"
        )
    report.took_ms = monotonic_ms() - began
    return report


def _of_log_dirs(fs: FileSystem, directories: list[str]) -> Verification:
    state = LogDirState.read(fs, directories)
    with contextlib.suppress(SparklogError, FileNotFoundError):  # the health reports damage
        state.state = state_now(fs, state.home)
    general, deleted = Findings(), state.deleted_paths()
    read_checkpoints(fs, state, general)
    for _, directory in state.numbered:
        if fs.is_dir(directory):
            check_log_dir(fs, directory, state.situation, general, deleted=deleted)
    report = Verification(directories=directories, situation=str(state.situation))
    found = general.found
    for key in sorted(state.found):
        out = Findings(key.topic, key.partition)
        part = ExpectedPartition(
            topic=key.topic, partition=key.partition, path=state.path(key),
            situation=state.situation, start=0, end=NO_LIMIT,
        )  # fmt: skip
        try:
            segments, size = _listed(fs, part, out)
        except (SparklogError, FileNotFoundError) as error:
            # One unreadable directory must not hide the findings of the other partitions.
            out.add(Severity.DIFFERENCE, part.path, f"the directory can't be listed: {error}")
            segments, size = 0, 0
        found += out.found
        if key.topic not in INTERNAL:
            report.partitions += 1
            report.segments += segments
            report.bytes += size
    report.findings = ordered(found)
    return report


def _listed(fs: FileSystem, part: ExpectedPartition, out: Findings) -> tuple[int, int]:
    """Check the file names of a partition. Return (segments, bytes)."""
    names = fs.listdir(part.path)
    bases, there = bases_of(names), set(names)
    # The log end isn't known, so snapshots past it can't be told apart.
    checked = [name for name in names if not name.endswith(SNAPSHOT)]
    check_partition_files(fs, part, checked, part.end, out)
    for base in bases[:-1]:  # the active segment's indexes may just be being created
        for name in (index_name(base), timeindex_name(base)):
            if name not in there:
                where = joined(part.path, name)
                out.add(Severity.DIFFERENCE, where, "the index is missing", fix=FixKind.INDEXES)
    size = 0
    for base in bases:
        try:
            size += fs.size(joined(part.path, log_name(base)))
        except FileNotFoundError:
            continue  # deleted since
    return len(bases), size
