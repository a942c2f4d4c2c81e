"""Sets owner and mode of a checkpoint's new files, because its query may run as another user."""

import os

from sparklog.checkpoint.log_backed.layout import LOGS
from sparklog.checkpoint.log_backed.lock import LOCK_NAME
from sparklog.fs import FileSystem, LocalFileSystem


def copy_mode_and_owner(fs: FileSystem, path: str, model: str) -> None:
    """Give `path`, which was just made, the mode of `model`, and its owner if that is allowed."""
    if isinstance(fs, LocalFileSystem):
        fs.copy_mode_and_owner(path, model)


def copy_log_dir_ownership(fs: FileSystem, root: str, directory: str, file: str) -> None:
    """Set mode and owner of a checkpoint's new log dir and all files in it, by two models."""
    logs = os.path.join(root, LOGS)
    partitions = [path for n in fs.listdir(logs) if fs.is_dir(path := os.path.join(logs, n))]
    copy_mode_and_owner(fs, os.path.join(logs, LOCK_NAME), file)
    for partition in partitions:
        for name in fs.listdir(partition):
            copy_mode_and_owner(fs, os.path.join(partition, name), file)
    for path in (*partitions, logs):
        copy_mode_and_owner(fs, path, directory)
