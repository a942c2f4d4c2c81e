"""Entries of a ledger in runs, as the driver of a query writes them (RunLedger.scala)."""

import json
import uuid
from collections.abc import Mapping
from typing import Final

from sparklog.checkpoint.stored_runs import (
    CONTENT,
    ENTRY_KEY,
    HEADER,
    REFERENCE,
    FileLocation,
    RunFiles,
    entry_name,
    run_files,
)
from sparklog.format.batch import encode_one
from sparklog.tiered import Store

TIME_MS: Final = 1

Changes = Mapping[str, bytes | FileLocation | None]
"""The files of an entry: {path: content, or location of the content, or None for a deletion}."""


def entry_bytes(
    kind: str, run: int, number: int, changes: Changes | None = None, **header: object
) -> bytes:
    """Return the bytes of an entry, which no other entry has."""
    changes = changes or {}
    fields = {
        "kind": kind, "run": run, "number": number, "attempt": str(uuid.uuid4()),
        "files": len(changes), **header,
    }  # fmt: skip
    batches = [_record(ENTRY_KEY, HEADER, json.dumps(fields).encode())]
    for path, change in changes.items():
        if isinstance(change, FileLocation):
            reference = {
                "object": change.object, "position": change.position,
                "batchBytes": change.batch_bytes, "length": change.length,
            }  # fmt: skip
            batches.append(_record(path, REFERENCE, json.dumps(reference).encode()))
        else:
            batches.append(_record(path, CONTENT, change))
    return b"".join(batches)


def _record(path: str, kind: int, value: bytes | None) -> bytes:
    return bytes(encode_one(path.encode(), value, timestamp=TIME_MS, base_sequence=kind))


def listed_runs(store: Store) -> RunFiles:
    """Return the ledger of a checkpoint in runs, as of now."""
    runs = run_files(store)
    assert runs is not None
    runs.list()
    return runs


def add_entries(store: Store, *entries: Changes) -> list[str]:
    """Append entries to the newest run as a driver would. Return their names."""
    names = []
    for changes in entries:
        runs = listed_runs(store)
        end = runs.end
        assert end is not None
        names.append(entry_name(f"sparklog/{runs.id}", end.run, end.number))
        assert store.create(names[-1], entry_bytes("files", end.run, end.number, changes))
    return names


def add_pack(store: Store, name: str, files: Mapping[str, bytes]) -> dict[str, FileLocation]:
    """Write a pack of files as an executor would. Return where each file is stored in it."""
    pack, locations = b"", {}
    for path, data in files.items():
        batch = _record(path, CONTENT, data)
        locations[path] = FileLocation(name, len(pack), len(batch), len(data), TIME_MS)
        pack += batch
    store.put(name, pack)
    return locations
