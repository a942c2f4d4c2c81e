"""Options of remote storage: access, key ring, and how long to wait."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from sparklog.configdef import parse_json_object
from sparklog.errors import InvalidRequestError

storage_option = click.option(
    "--storage-options", metavar="JSON|@FILE", default="{}", envvar="SPARKLOG_STORAGE_OPTIONS",
    help="Pass these fsspec options to the object store (endpoint_url, key, secret, ...), as a "
    "JSON object. Every user of the host can read the arguments of a process, so pass secrets as "
    "@FILE, a file that contains the object, or in the environment variable "
    "SPARKLOG_STORAGE_OPTIONS. The default is the provider's own configuration: its environment "
    "variables and profiles.",
)  # fmt: skip
keyring_option = click.option(
    "--keyring", metavar="FILE", envvar="SPARKLOG_KEYRING",
    help="Decrypt segments with the keys in this file (docs/encryption.md). The default is the "
    "environment variable SPARKLOG_KEYRING, or no key.",
)  # fmt: skip
_patience_option = click.option(
    "--patience-ms", type=click.IntRange(0), metavar="MS",
    help="Wait at most this many milliseconds for an object store that does not answer. The "
    "default is 60000 (one minute), or 7200000 (two hours) for `consume --follow` and other "
    "commands that run until they are stopped.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """Options for opening a log in an object store, or with segments in remote storage.

    Attributes:
        storage: Options of fsspec.
        options: Options of sparklog (`remote.*`).
    """

    storage: dict[str, Any] = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)


def access_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of remote storage to a command, which gets them as the argument `access`."""

    @functools.wraps(command)
    def run(
        *args: Any, storage_options: str, keyring: str | None, patience_ms: int | None, **given: Any
    ) -> int:
        options: dict[str, object] = {}
        if keyring is not None:
            options["remote.keyring"] = keyring
        if patience_ms is not None:
            options["remote.patience.ms"] = patience_ms
        access = StoreAccess(parse_storage_options(storage_options), options)
        return command(*args, access=access, **given)

    decorated: Callable[..., int] = storage_option(keyring_option(_patience_option(run)))
    return decorated


def parse_storage_options(text: str) -> dict[str, Any]:
    """Return the options in a JSON object, or in @FILE.

    Messages never contain the text, which may include secrets.

    Raises:
        click.BadParameter: The text is not a JSON object, or the file cannot be read.
    """
    path = text.strip().removeprefix("@") if text.strip().startswith("@") else None
    try:
        if path is not None:
            text = Path(path).read_text(encoding="utf-8")
        return parse_json_object(text, name="--storage-options")
    except OSError as error:
        why = f"{path} cannot be read ({error.strerror})"
    except (InvalidRequestError, UnicodeDecodeError):
        where = "the text" if path is None else path
        why = f'{where} is not a JSON object, such as {{"endpoint_url": "http://host:9000"}}'
    # Outside the handlers: the JSON parser's error, which quotes the text with its secrets, must
    # not become the cause of this error.
    raise click.BadParameter(why, param_hint="'--storage-options'")
