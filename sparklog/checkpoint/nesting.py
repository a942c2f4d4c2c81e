"""Checks that a query's checkpoint and the log that it writes are not nested."""

import logging
import os
from typing import Final

from sparklog.checkpoint.files import local_path
from sparklog.errors import InvalidRequestError
from sparklog.logdir.paths import is_within, store_url

_LOGGER: Final = logging.getLogger(__name__)


def check_not_nested(checkpoint: str, log: str | os.PathLike[str]) -> None:
    """Check the paths of a query's checkpoint and log, with links resolved.

    A checkpoint within a log dir is logged as a warning.
    Raises: InvalidRequestError: the log is in the checkpoint's directory. A reset would exchange
        the log together with the checkpoint, and an archive would contain it; a log at `sparklog`
        would use the same directory as the checkpoint's records.
    """
    if store_url(log) is not None:
        return
    root = os.path.realpath(checkpoint)
    for directory in map(str.strip, os.fspath(log).split(",")):
        local = local_path(directory)
        if local is None:
            continue
        home = os.path.realpath(local)
        if is_within(home, root):
            raise InvalidRequestError(
                f"the log dir {directory} is in the query's checkpoint {checkpoint}, whose files "
                "come and go with resets, forks and archives: give the log a directory of its own "
                "(with the query stopped it can be moved, `mv`, as it is)",
                path=directory,
            )
        if is_within(root, home):
            _LOGGER.warning(
                "the checkpoint %s is in the log dir %s: a Kafka broker won't start there, and "
                "what removes the log removes the checkpoint; keep them apart", checkpoint,
                directory,
            )  # fmt: skip
