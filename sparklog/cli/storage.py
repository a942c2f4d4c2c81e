"""The options that say how to reach remote storage, how to read what lies there, and how long to
wait for it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

from sparklog.configdef import parse_json_object
from sparklog.errors import InvalidRequestError

storage_option = click.option(
    "--storage-options", metavar="JSON", default="{}", envvar="SPARKLOG_STORAGE_OPTIONS",
    help="fsspec's options: endpoint_url, key, secret, ... By default the store's own places "
    "(environment, profiles) are asked.",
)  # fmt: skip
keyring_option = click.option(
    "--keyring", metavar="FILE", envvar="SPARKLOG_KEYRING",
    help="The keys of encrypted segments (docs/encryption.md).",
)  # fmt: skip
_patience_option = click.option(
    "--patience-ms", type=click.IntRange(0), metavar="MS",
    help="How long to wait for a store that doesn't answer; by default a minute, two hours where "
    "it goes on for ever.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reach:
    """How remote segments are read: fsspec's options, and sparklog's (`remote.*`)."""

    storage: dict[str, Any] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)


def reach_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command that reads a log the options of remote storage, as its argument `reach`."""

    @functools.wraps(command)
    def run(
        *args: Any, storage_options: str, keyring: str | None, patience_ms: int | None, **given: Any
    ) -> int:
        options: dict[str, object] = {}
        if keyring is not None:
            options["remote.keyring"] = keyring
        if patience_ms is not None:
            options["remote.patience.ms"] = patience_ms
        reach = Reach(parse_storage_options(storage_options), options)
        return command(*args, reach=reach, **given)

    decorated: Callable[..., int] = storage_option(keyring_option(_patience_option(run)))
    return decorated


def parse_storage_options(text: str) -> dict[str, Any]:
    """Return the option's value. Raises click.BadParameter."""
    try:
        return parse_json_object(text, name="--storage-options")
    except InvalidRequestError:
        hint = "'--storage-options'"
        raise click.BadParameter("want a JSON object", param_hint=hint) from None
