"""Opens the log that a command is to work on, and refuses paths where there is none.

What is missing, a file, empty or something else is told in one wording here, for all commands: an
empty directory must never look like a log in which all is well.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sparklog.cli.storage import StoreAccess
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError
from sparklog.format.names import check_topic
from sparklog.fs import LOCAL, check_reachable
from sparklog.log.log import Log, home_of
from sparklog.logdir.detection import holds_log
from sparklog.logdir.ledger import has_ledger
from sparklog.logdir.meta_properties import META_PROPERTIES
from sparklog.logdir.paths import split_path
from sparklog.logdir.topics_file import TOPICS_NAME
from sparklog.opening import SERVED_READ_ONLY, holds_home, open_log, url_of
from sparklog.opening import check_log_dirs as refuse_store
from sparklog.tiered.archive.opening import no_archive
from sparklog.tiered.reading.options import RemoteOptions

_ADDRESS: Final = re.compile(r"[\w.\-]+:[0-9]{1,5}")  # what Kafka's tools have there


def check_directory(path: str, what: str = "the log's directory") -> None:
    """Raise InvalidRequestError unless there is a directory at `path`; `what` it should be."""
    if LOCAL.is_dir(path):
        return
    if LOCAL.exists(path):
        raise InvalidRequestError(f"{path} is a file: give {what}")
    check_reachable(LOCAL, path)
    raise InvalidRequestError(f"{path} does not exist: give {what}")


def refuse_address(path: str) -> None:
    """Raise InvalidRequestError for what isn't there and looks like Kafka servers' addresses.

    A log that is made there would be a directory of that name.
    """
    for part in path.split(","):
        if _ADDRESS.fullmatch(part) and not LOCAL.exists(part):
            raise InvalidRequestError(
                f"{part} looks like a server's address: give the log's directory or URL (./{part} "
                "if that is a directory). A log needs no server; Kafka's own tools reach one by "
                "`sparklog serve PATH --kafka 9092`"
            )


def check_directories(path: str) -> None:
    """Raise InvalidRequestError unless all log dirs of `path` are there, be they empty."""
    for part in split_path(path):
        if "://" not in part:
            check_directory(part, "the log's directory; `sparklog topics create` makes one")


def check_creation(path: str, topic: str, config: Mapping[str, str]) -> None:
    """Raise InvalidRequestError if a topic can't be made, before a log is made for it.

    What lies in a store is looked at when the log is opened there.
    """
    url = url_of(path)
    if url is None:
        refuse_address(path)
        for part in split_path(path):
            if LOCAL.exists(part):
                check_directory(part)
    elif url.startswith("file://") and not holds_home(url):
        raise _archive(path)
    check_topic(topic)
    TopicConfig.parse(config)


def is_log(path: str, access: StoreAccess | None = None) -> bool:
    """Tell whether something of a log is at `path`: in one of the log dirs, or a store's home."""
    url = url_of(path)
    if url is not None:
        return _is_home(url, access)
    return any(holds_log(LOCAL, directory) for directory in split_path(path))


def check_log_dirs(path: str, instead: str, *, offline: bool = False) -> None:
    """Raise InvalidRequestError unless there is a log in log dirs at `path`, whose files it takes.

    Args: instead: what does the same for a log in a store; offline: as `check_log` has it.
    """
    refuse_store(path, instead)
    check_log(path, offline=offline)


def check_log(
    path: str,
    access: StoreAccess | None = None,
    *,
    archives: bool = True,
    offline: bool = False,
    cure: str = "`sparklog topics create` makes one",
) -> None:
    """Raise InvalidRequestError unless there is a log at `path`, a broker's or an archive too.

    Args:
        archives: whether the URL of an archive will do; what it holds isn't looked at. Else a
            store is asked whether it is a log's home.
        offline: whether log dirs behind the first one may be missing.
        cure: how a log is made, where there is none.
    """
    directories = split_path(path)
    url = url_of(path)
    if url is not None:
        if archives or _is_home(url, access):
            return
        raise _archive(path)
    refuse_address(path)
    for directory in directories[:1] if offline else directories:
        check_directory(directory, f"the log's directory; {cure}")
    if not is_log(path):
        raise InvalidRequestError(
            f"{','.join(directories)} holds no log: neither a partition (NAME-NUMBER with .log "
            f"files) nor {TOPICS_NAME} nor {META_PROPERTIES} is there. "
            f"Give a log's directory; {cure}"
        )


def check_dry_run(path: str, *, dry_run: bool) -> None:
    """Raise InvalidRequestError for a dry run on a broker's directory.

    What is to be done is found out by who has the log open for writing, and that takes it over.
    """
    if not dry_run or url_of(path) is not None:
        return
    home = split_path(path)[0]
    is_ours = has_ledger(LOCAL, home) or LOCAL.exists(os.path.join(home, TOPICS_NAME))
    if not is_ours and holds_log(LOCAL, home):
        raise InvalidRequestError(
            f"{home} is a broker's directory, and even to look for what would be done takes it "
            "over: do that first, by opening the log for writing, or rehearse on a copy of it"
        )


def _is_home(url: str, access: StoreAccess | None) -> bool:
    access = access or StoreAccess()
    return holds_home(url, access.storage, RemoteOptions.parse(access.options)[0])


def _archive(path: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{path} is an archive, which holds segments alone, no ledger, readers or service, or "
        "nothing is there: give a log's directory (`sparklog tier restore` makes one), or the URL "
        f"of a log in a store. {SERVED_READ_ONLY}"
    )


@contextmanager
def to_read(
    path: str,
    access: StoreAccess | None = None,
    *,
    stopped: Callable[[], bool] = lambda: False,
    **given: Any,
) -> Iterator[Log]:
    """Open a log or an archive for reading; nothing is locked or changed.

    `stopped` ends a wait for remote storage. `given`: as `check_log` takes it.
    """
    check_log(path, access, **given)
    access = access or StoreAccess()
    with open_log(
        path, storage_options=access.storage, options=access.options, stopped=stopped
    ) as log:
        if not home_of(log).ledger.exists and not log.topics():
            raise no_archive(path)
        yield log


@contextmanager
def to_change(path: str, *topics: str, access: StoreAccess | None = None) -> Iterator[Log]:
    """Open a log for writing, after a look whether it and the `topics` are there.

    So a mistyped name makes no log and takes none over.
    """
    access = access or StoreAccess()
    check_log(path, access, archives=False)
    given: dict[str, Any] = {"storage_options": access.storage, "options": access.options}
    if topics:
        with open_log(path, **given) as log:
            for topic in topics:
                log.topic(topic)
    with open_log(path, mode="rw", **given) as log:
        yield log
