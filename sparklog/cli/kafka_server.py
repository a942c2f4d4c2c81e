"""The endpoint of `sparklog serve --kafka`, which reopens a replaced log."""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import click

from sparklog.cli.open_log import to_change, to_read
from sparklog.cli.parsing import key_values
from sparklog.cli.storage import StoreAccess
from sparklog.errors import SparklogError
from sparklog.log.log import Log, is_replaced

_LOGGER = logging.getLogger("sparklog.kafka")


@dataclass(frozen=True, slots=True)
class KafkaServing:
    """Settings of the Kafka endpoint.

    Attributes:
        read_only: Whether the endpoint rejects writes of clients.
    """

    path: str
    access: StoreAccess
    host: str
    port: int
    options: Mapping[str, str]
    read_only: bool

    @classmethod
    def from_options(
        cls,
        path: str,
        access: StoreAccess,
        address: str | None,
        options: Sequence[str],
        *,
        read_only: bool,
        alone: bool = True,
    ) -> "KafkaServing | None":
        """Build the settings from the command line. Without `--kafka` the result is None.

        Args:
            path: The log.
            access: The options for opening the log.
            address: The value of --kafka.
            options: The values of --kafka-option.
            read_only: Whether --read-only was passed.
            alone: Whether --ui was not passed, so that --read-only requires --kafka.

        Raises:
            click.UsageError: An option requires --kafka.
        """
        if address is None:
            if read_only and alone:
                raise click.UsageError("--read-only requires --kafka or --ui")
            if options:
                raise click.UsageError("--kafka-option requires --kafka")
            return None
        # Imported only here, because `serve` itself does not need the extra `endpoint`.
        from sparklog.kafka.listeners import parse_address

        found = parse_address(address)
        given = key_values(options, "--kafka-option")
        return cls(path, access, found.host, found.port, given, read_only)


class KafkaServer:
    """A context manager that runs the Kafka endpoint.

    A log that is replaced (restored, or deleted and created again) is opened again at the same
    address. While there is no log, connections are refused, and clients retry.

    Attributes:
        bootstrap_servers: The address for clients.
    """

    def __init__(self, serving: KafkaServing) -> None:
        self._serving, self._port = serving, serving.port
        self._opened = contextlib.ExitStack()
        self._log: Log | None = None
        self._refused = ""  # error of the last attempt to open
        self.bootstrap_servers = ""

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()

    def reopen_if_replaced(self) -> None:
        """Reopen the log if another log has replaced the log at the same path.

        The command calls this method periodically.

        Cost: a stat.
        """
        if self._log is not None and is_replaced(self._log):
            _LOGGER.warning(
                "%s was replaced by another log; the endpoint opens the new log",
                self._serving.path,
            )
            self._close()
        if self._log is None:
            try:
                self._open()
            except SparklogError as error:
                if str(error) != self._refused:  # log an error only once
                    self._refused = str(error)
                    _LOGGER.warning(
                        "%s can't be served to Kafka clients; the endpoint tries again: %s",
                        self._serving.path, error,
                    )  # fmt: skip
            else:
                self._refused = ""
                _LOGGER.warning("%s is served to Kafka clients again", self._serving.path)

    def _open(self) -> None:
        from sparklog.kafka import Endpoint

        serving = self._serving
        # Both refuse a path without a log, so that a restart never creates an empty log in place of
        # a log that is being restored.
        opened = to_read if serving.read_only else to_change
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(opened(serving.path, access=serving.access))
            endpoint = stack.enter_context(
                Endpoint(log, host=serving.host, port=self._port, options=serving.options)
            )
            self._opened = stack.pop_all()
        # The port is kept for the next opening: clients know the port that port 0 selected.
        self._log, self._port = log, endpoint.port
        self.bootstrap_servers = endpoint.bootstrap_servers

    def _close(self) -> None:
        self._log = None
        with contextlib.suppress(SparklogError):  # the log may be missing
            self._opened.close()
