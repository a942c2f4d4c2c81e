"""A query's checkpoint and the log that it writes must not lie in one another."""

import logging
import os
from typing import Final

from sparklog.checkpoint.files import local_path
from sparklog.errors import InvalidRequestError
from sparklog.logdir.paths import is_within, store_url

_LOGGER: Final = logging.getLogger(__name__)


def check_not_nested(checkpoint: str, log: str | os.PathLike[str]) -> None:
    """Check a query's checkpoint and log, links resolved. One within a log dir is warned of.

    Raises: InvalidRequestError: the log lies in the checkpoint, where a reset would exchange it and
        an archive hold it as a part; at `sparklog` both would write the same directory.
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
                f"the log dir {directory} lies in the query's checkpoint {checkpoint}, whose files "
                "come and go with resets, forks and archives: give the log a directory of its own "
                "(with the query stopped it can be moved, `mv`, as it is)",
                path=directory,
            )
        if is_within(root, home):
            _LOGGER.warning(
                "the checkpoint %s lies in the log dir %s: a Kafka broker won't start there, and "
                "what removes the log removes the checkpoint; keep them apart", checkpoint,
                directory,
            )  # fmt: skip
