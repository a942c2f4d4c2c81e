"""What a reader of both tiers must find: each committed record, in a local file or in a copy."""

from __future__ import annotations

import sparklog
from sparklog.clock import Clock
from sparklog.format.scan import scan
from sparklog.fs import read_bytes
from sparklog.log.log import Log
from sparklog.log.walk import joined, segment_bases
from sparklog.tiered.manifest import log_object, manifest_object, parse
from sparklog.tiered.metadata import MetadataFollower
from sparklog.tiered.store import Store


def held(raw: bytes, path: str) -> set[int]:
    """The offsets of the whole, valid batches of a segment's log."""
    found: set[int] = set()
    for row in scan(raw, path=path).table:
        found |= set(range(int(row["base_offset"]), int(row["last_offset"]) + 1))
    return found


def readable(log: sparklog.Log | Log, clock: Clock, store: Store) -> None:
    """Assert that no committed offset from the log start on is missing in both tiers.

    Copies count by what the metadata says, and their objects must say the same.
    """
    session, view = log.session, log.view
    fs, catalog = session.fs, MetadataFollower(view, clock).catch_up()
    for name, topic in log.topics().items():
        for p, directory in topic.dirs.items():
            start, end = log.offsets(name)[p]
            offsets: set[int] = set()
            for base in segment_bases(fs, directory):
                path = joined(directory, f"{base:020d}.log")
                offsets |= held(read_bytes(fs, path), path)
            local = set(offsets)
            for segment in catalog.readable((topic.id, p)):
                if segment.end <= start:
                    continue
                manifest, _ = parse(store.get(manifest_object(segment)), path="m")
                assert manifest.segment.base == segment.base
                raw = store.get(log_object(segment))
                assert len(raw) == manifest.stored_size
                got = set(range(segment.base, segment.end))
                if manifest.encryption is None:
                    assert held(raw, "copy") == got
                offsets |= got
            missing = set(range(start, end)) - offsets
            assert not missing, f"{name}-{p}: {sorted(missing)} of [{start}, {end})"
            with session.locked():
                local_start = session.state.local_start(name, p)
            assert set(range(local_start, end)) <= local
