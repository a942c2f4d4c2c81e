"""`meta.properties`: whose a log dir is; and, as long as it is sparklog's, why no broker starts.

A broker that finds a log dir with a `meta.properties` of a version that it doesn't know takes the
dir for failed, before it touches anything there, and doesn't start without its metadata log dir;
`kafka-storage format` refuses it as well. So every log dir that sparklog wrote to carries one
whose version is a sentence, until the log was handed over. What a broker's own file said besides
(cluster.id, node.id, directory.id) stays in it.
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
    """Return what a log dir's `meta.properties` says, without its version; nothing if not there."""
    found = _read(fs, directory)
    found.pop(_VERSION, None)
    return found


def is_kept_from_brokers(fs: FileSystem, directory: str) -> bool:
    """Tell whether a broker refuses the log dir for what its `meta.properties` says."""
    return _read(fs, directory).get(_VERSION) == _OURS


def keep_from_brokers(fs: FileSystem, directories: Sequence[str]) -> None:
    """Make brokers refuse the log dirs, durably. Idempotent; cost: a small read each."""
    for directory in directories:
        known = _read(fs, directory)
        if known.get(_VERSION) != _OURS:
            _write(fs, directory, {**known, _VERSION: _OURS}, note=_NOTE)


def give_to_brokers(fs: FileSystem, directory: str, properties: Mapping[str, str]) -> None:
    """Write a `meta.properties` that a broker of the cluster takes, durably."""
    _write(fs, directory, {**properties, _VERSION: "1"})


def _read(fs: FileSystem, directory: str) -> dict[str, str]:
    """Its lines; Java's escapes don't occur in ids."""
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
