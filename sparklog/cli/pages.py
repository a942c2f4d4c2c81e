"""The pages of `sparklog serve --ui` and `sparklog ui`: their options and their server."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from sparklog.cli.open_log import check_log
from sparklog.cli.storage import StoreAccess
from sparklog.errors import InvalidRequestError
from sparklog.extras import needed
from sparklog.log.log import Log
from sparklog.network.addresses import Address, resolve
from sparklog.opening import holds_own_log, open_log
from sparklog.service.health import Examiner
from sparklog.ui.access import (
    TOKEN_VARIABLE,
    Access,
    check_listener,
    parse_ui_address,
    read_token,
    tls_files,
)
from sparklog.ui.report.build import make_report
from sparklog.ui.report.segments import ReportCache

PORT: Final = "8080"
_PATIENCE_MS: Final = 3000  # for a store that does not answer, while a person waits


@dataclass(frozen=True, slots=True)
class PagesOptions:
    """The values of the options --ui-..., before they are checked."""

    token_file: str | None
    certificate: str | None
    key: str | None
    names: Sequence[str]
    insecure: bool


NO_PAGES: Final = PagesOptions(None, None, None, (), False)
"""The options of a command without any of them."""


def pages_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options --ui-... to a command, which gets the values as the argument `pages`."""

    @functools.wraps(command)
    def run(
        *args: Any,
        ui_token_file: str | None,
        ui_certificate: str | None,
        ui_key: str | None,
        ui_name: Sequence[str],
        ui_insecure: bool,
        **given: Any,
    ) -> int:
        pages = PagesOptions(ui_token_file, ui_certificate, ui_key, tuple(ui_name), ui_insecure)
        return command(*args, pages=pages, **given)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


_OPTIONS: Final = (
    click.option(
        "--ui-token-file", metavar="FILE",
        help="Show the pages only to users who enter the token in this file. Other users must not "
        "be "
        "able to read the file (chmod 600). The default is the environment variable "
        f"{TOKEN_VARIABLE}, or no token. A token is required on hosts other than 127.0.0.1.",
    ),
    click.option(
        "--ui-certificate", metavar="FILE",
        help="Serve the pages over HTTPS with the certificate in this PEM file. Required on hosts "
        "other than 127.0.0.1, unless --ui-insecure is set.",
    ),
    click.option(
        "--ui-key", metavar="FILE",
        help="Read the private key of the certificate from this PEM file. The default is the file "
        "of --ui-certificate.",
    ),
    click.option(
        "--ui-name", multiple=True, metavar="NAME",
        help="Accept requests for this host name, which a proxy forwards to the pages on "
        "127.0.0.1. Repeatable.",
    ),
    click.option(
        "--ui-insecure", is_flag=True,
        help="Allow pages without HTTPS on hosts other than 127.0.0.1. Use it only in a network "
        "that you trust, because the token and the records are sent unencrypted.",
    ),
)  # fmt: skip


class Pages:
    """The web pages of a log. The constructor checks that the pages may be served.

    Raises:
        InvalidRequestError: An option is invalid, or a required option is missing. The message
            names the option.
        StorageUnavailableError: The store does not answer.
    """

    def __init__(
        self,
        path: str,
        address: str,
        options: PagesOptions,
        storage: Mapping[str, Any],
        log_options: Mapping[str, object],
        *,
        option: str = "--ui",
    ) -> None:
        self.path = path
        self.address: Address = parse_ui_address(address, option)
        addresses = resolve(self.address.host)
        token = read_token(options.token_file)
        tls = tls_files(options.certificate, options.key)
        check_listener(
            self.address, addresses, token=token is not None, tls=tls is not None,
            insecure=options.insecure, names=options.names, option=option,
        )  # fmt: skip
        access = Access(addresses, token=token, names=options.names, secure=tls is not None)
        self._storage = dict(storage)
        self._log_options = {"remote.patience.ms": _PATIENCE_MS, **log_options}
        with needed(InvalidRequestError):
            from sparklog.ui.log_browser import LogBrowser
            from sparklog.ui.server import LiveServer
            from sparklog.ui.site import LogSite
        browser = LogBrowser(
            path, self._opened, keeps_configs=lambda: holds_own_log(path, self._storage)
        )
        report = functools.partial(make_report, memory=ReportCache())
        site = LogSite(
            lambda: report(path, storage_options=self._storage, options=self._log_options),
            browser=browser,
            examine=Examiner(
                path, storage_options=self._storage, options=self._log_options
            ).examine,
            asks=access.asks,
        )
        self._server = functools.partial(
            LiveServer, site, self.address, access=access, tls=tls, option=option
        )

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Serve the pages in this block, and yield their URL."""
        with self._server() as server:
            yield server.url

    def _opened(self, stopped: Callable[[], bool]) -> Log:
        check_log(self.path, StoreAccess(self._storage, self._log_options), offline=True)
        return open_log(
            self.path, storage_options=self._storage, options=self._log_options, stopped=stopped
        )
