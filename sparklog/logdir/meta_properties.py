"""`meta.properties`: the owner of a log dir; locks brokers out while the log is sparklog's.

A broker that finds a `meta.properties` with an unknown version treats the log dir as failed before
it changes anything there, and does not start without its metadata log dir; `kafka-storage format`
rejects it too. So every log dir that sparklog wrote to has a file with a sentence as version, until
the log is handed over. The other entries of a broker's own file (cluster.id, node.id, directory.id)
are preserved.
Source: MetaPropertiesEnsemble.Loader, MetaPropertiesVersion, KafkaRaftServer.initializeLogDirs.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from sparklog.fs import FileSystem, read_bytes, write_durably

META_PROPERTIES: Final = "meta.properties"
CLUSTER_ID: Final = "cluster.id"
NODE_ID: Final = "node.id"
DIRECTORY_ID: Final = "directory.id"
_VERSION: Final = "version"
_OURS: Final = "sparklog keeps this log: run `sparklog handover` on it first"
_NOTE: Final = b"# Brokers don't know this version, and so leave the directory alone.\n"


def read_properties(fs: FileSystem, directory: str) -> dict[str, str]:
    """Return the entries of a log dir's `meta.properties`, except the version."""
    found = _read(fs, directory)
    found.pop(_VERSION, None)
    return found


def is_kept_from_brokers(fs: FileSystem, directory: str) -> bool:
    """Return True if a broker rejects the log dir because of the file `meta.properties`."""
    return _read(fs, directory).get(_VERSION) == _OURS


def keep_from_brokers(fs: FileSystem, directories: Sequence[str]) -> None:
    """Make brokers reject the log dirs, durably. Idempotent; cost: a small read per log dir."""
    for directory in directories:
        known = _read(fs, directory)
        if known.get(_VERSION) != _OURS:
            _write(fs, directory, {**known, _VERSION: _OURS}, note=_NOTE)


def give_to_brokers(fs: FileSystem, directory: str, properties: Mapping[str, str]) -> None:
    """Write a `meta.properties` that a broker of the cluster accepts, durably."""
    _write(fs, directory, {**properties, _VERSION: "1"})


def _read(fs: FileSystem, directory: str) -> dict[str, str]:
    """Return all entries of a log dir's `meta.properties`; empty without the file.

    Java's escapes are not decoded, because they do not occur in ids.
    """
    try:
        raw = read_bytes(fs, os.path.join(directory, META_PROPERTIES))
    except FileNotFoundError:
        return {}
    lines = [line.strip() for line in raw.decode(errors="replace").splitlines()]
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _write(
    fs: FileSystem, directory: str, properties: Mapping[str, str], *, note: bytes = b""
) -> None:
    lines = "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))
    write_durably(fs, os.path.join(directory, META_PROPERTIES), note + lines.encode())
