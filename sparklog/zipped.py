"""Files that must be on disk, if the package is imported from a zip (spark-submit --py-files).

Python imports no shared library from a zip, and the JVM loads no jar from one.
"""

import contextlib
import hashlib
import importlib
import os
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Final

_PACKAGE: Final = __name__.partition(".")[0]
_KERNEL: Final = f"{_PACKAGE}.format"


def use_kernel(archive: str) -> None:
    """Let Python import the compiled kernel of the package in `archive`, a zip file.

    The interpreted kernel is used if the zip has no kernel for this platform, or if there is no
    directory from which a shared library can be loaded.
    """
    folder = _KERNEL.replace(".", "/")
    with zipfile.ZipFile(archive) as packed:
        names = [n for n in packed.namelist() if n.startswith(folder) and n.endswith(".so")]
    if not names:
        return
    package = importlib.import_module(_KERNEL)
    with contextlib.suppress(OSError):
        package.__path__.insert(0, os.path.join(unpack(archive, names), *folder.split("/")))
        try:
            importlib.import_module(f"{_KERNEL}.kernel")
        except ImportError:  # of another platform, or on a file system without executables
            del package.__path__[0]
            sys.modules.pop(f"{_KERNEL}.kernel", None)


def unpack(archive: str, names: Sequence[str]) -> str:
    """Write files of a zip below a directory, and return the directory.

    All processes of a user use the same directory for the same files, because Spark starts many
    Python workers and ends them without cleaning up.

    Raises:
        OSError: The directory for temporary files is not writable.
    """
    with zipfile.ZipFile(archive) as packed:
        files = {name: packed.read(name) for name in sorted(names)}
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    name = f"{_PACKAGE}-{os.getuid()}-{digest.hexdigest()[:16]}"
    target = os.path.join(tempfile.gettempdir(), name)
    if _is_own(target):
        return target
    made = tempfile.mkdtemp(prefix="sparklog-")  # accessible by this user only
    for name, content in files.items():
        path = os.path.join(made, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
    try:
        os.rename(made, target)
    except OSError:  # another process was first, or the name belongs to another user
        if not _is_own(target):
            return made
        shutil.rmtree(made, ignore_errors=True)
    return target


def _is_own(directory: str) -> bool:
    """Return whether only this user can have written the directory."""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    is_private = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and is_private
