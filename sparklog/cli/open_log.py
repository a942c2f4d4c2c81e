"""Opens the log of a command, and refuses paths without a log.

All commands use the same messages for a missing path, a file, an empty directory or something else.
An empty directory must never look like a healthy log.
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

_ADDRESS: Final = re.compile(r"[\w.\-]+:[0-9]{1,5}")  # the form of addresses in Kafka's tools


def check_directory(path: str, what: str = "the log's directory") -> None:
    """Raise InvalidRequestError unless `path` is a directory.

    Args:
        path: The path.
        what: The directory that the user should pass, for the error message.
    """
    if LOCAL.is_dir(path):
        return
    if LOCAL.exists(path):
        raise InvalidRequestError(f"{path} is a file: pass {what}")
    check_reachable(LOCAL, path)
    raise InvalidRequestError(f"{path} does not exist: pass {what}")


def refuse_address(path: str) -> None:
    """Raise InvalidRequestError for a missing path that looks like addresses of Kafka servers.

    Otherwise a command that creates a log would create a directory of this name.
    """
    for part in path.split(","):
        if _ADDRESS.fullmatch(part) and not LOCAL.exists(part):
            raise InvalidRequestError(
                f"{part} looks like a server's address: pass the log's directory or URL (./{part} "
                "if that is a directory). A log needs no server; Kafka's own tools can use the "
                "server that `sparklog serve PATH --kafka 9092` runs"
            )


def check_directories(path: str) -> None:
    """Raise InvalidRequestError unless all log dirs of `path` exist; they may be empty."""
    for part in split_path(path):
        if "://" not in part:
            check_directory(part, "the log's directory; `sparklog topics create` makes one")


def check_creation(path: str, topic: str, config: Mapping[str, str]) -> None:
    """Raise InvalidRequestError if a topic cannot be created, before the log is created.

    A store is checked only when the log is opened there.
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
    """Return True if a log dir of `path` contains parts of a log, or the URL is a log."""
    url = url_of(path)
    if url is not None:
        return _is_home(url, access)
    return any(holds_log(LOCAL, directory) for directory in split_path(path))


def check_log_dirs(path: str, instead: str, *, offline: bool = False) -> None:
    """Raise InvalidRequestError unless `path` is a log in log dirs.

    Args:
        path: The log dirs.
        instead: The command that does the same for a log in a store, for the error message.
        offline: See `check_log`.
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
    """Raise InvalidRequestError unless `path` is a log, a broker's directory or an archive.

    Args:
        path: The log dirs, or a URL.
        access: The options for opening a log in a store.
        archives: Accept the URL of an archive without looking at its content. Otherwise a store
            must contain a log.
        offline: Whether log dirs after the first may be missing.
        cure: How to create a log, for the error message.
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
            f"{','.join(directories)} contains no log: neither a partition (NAME-NUMBER with .log "
            f"files) nor {TOPICS_NAME} nor {META_PROPERTIES} exists. "
            f"Pass a log's directory; {cure}"
        )


def check_dry_run(path: str, *, dry_run: bool) -> None:
    """Raise InvalidRequestError for a dry run on a broker's directory.

    A dry run needs a log that is open for writing, which takes the directory over.
    """
    if not dry_run or url_of(path) is not None:
        return
    home = split_path(path)[0]
    is_ours = has_ledger(LOCAL, home) or LOCAL.exists(os.path.join(home, TOPICS_NAME))
    if not is_ours and holds_log(LOCAL, home):
        raise InvalidRequestError(
            f"{home} is a broker's directory, and even a dry run would take it over: open the log "
            "for writing first, or try the command on a copy of the directory"
        )


def _is_home(url: str, access: StoreAccess | None) -> bool:
    access = access or StoreAccess()
    return holds_home(url, access.storage, RemoteOptions.parse(access.options)[0])


def _archive(path: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{path} is an archive, which has only segments and no ledger, readers or service, or it "
        "is empty: pass a log's directory (`sparklog tier restore` makes one), or the URL "
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
    """Open a log or an archive for reading, without locks or changes.

    Args:
        path: The log dirs, or a URL.
        access: The options for opening a log in a store.
        stopped: If this function returns True, a wait for remote storage ends.
        given: More arguments of `check_log`.
    """
    check_log(path, access, **given)
    access = access or StoreAccess()
    with open_log(
        path, storage_options=access.storage, options=access.options, stopped=stopped
    ) as log:
        # An archive without a topic is most often a mistyped URL: an object store doesn't report
        # that a prefix is missing.
        if not home_of(log).ledger.exists and not log.topics():
            raise no_archive(path)
        yield log


@contextmanager
def to_change(path: str, *topics: str, access: StoreAccess | None = None) -> Iterator[Log]:
    """Open a log for writing, after checking that the log and `topics` exist.

    Therefore a mistyped name neither creates nor takes over a log.
    """
    access = access or StoreAccess()
    check_log(path, access, archives=False)
    given: dict[str, Any] = {"storage_options": access.storage, "options": access.options}
    if topics:
        with open_log(path, **given) as log:
            for topic in topics:
                log.topic(topic)
    # Only now: opening for writing recovers the log, and takes over a broker's directory.
    with open_log(path, mode="rw", **given) as log:
        yield log
