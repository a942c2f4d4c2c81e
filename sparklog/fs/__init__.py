"""Local files: the file system protocol of the engine, and its implementation.

All reads and writes on local disks use a `FileSystem`, so that `sparklog.testing.crashfs` can
replace it and lose unsynced data.

- `protocol`: the protocol; `local`: the machine's file system; `files`: open files, errors
- `locks`: locks on open file descriptions
"""

from sparklog.fs.local import LocalFileSystem
from sparklog.fs.protocol import (
    SETTLED_MS,
    Buffer,
    File,
    FileSystem,
    LockFile,
    Mapping,
    Volume,
    check_reachable,
    make_directories,
    read_bytes,
    write_durably,
)

LOCAL = LocalFileSystem()
"""The file system that everything uses unless a test passes another."""

__all__ = [
    "LOCAL",
    "SETTLED_MS",
    "Buffer",
    "File",
    "FileSystem",
    "LocalFileSystem",
    "LockFile",
    "Mapping",
    "Volume",
    "check_reachable",
    "make_directories",
    "read_bytes",
    "write_durably",
]
