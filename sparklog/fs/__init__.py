"""Local files: what the engine asks of a file system, and the real one.

Everything that sparklog reads or writes on a local disk goes through a `FileSystem`, so that
`sparklog.testing.crashfs` can take its place and lose what was never synced.

- `protocol`: what the engine asks; `local`: the machine's own; `files`: open files, errors
- `locks`: locks on open file descriptions
"""

from sparklog.fs.local import LocalFileSystem
from sparklog.fs.protocol import (
    Buffer,
    File,
    FileSystem,
    LockFile,
    Mapping,
    Volume,
    check_reachable,
    read_bytes,
    write_durably,
)

LOCAL = LocalFileSystem()
"""The file system that everything uses unless a test passes another."""

__all__ = [
    "LOCAL",
    "Buffer",
    "File",
    "FileSystem",
    "LocalFileSystem",
    "LockFile",
    "Mapping",
    "Volume",
    "check_reachable",
    "read_bytes",
    "write_durably",
]
