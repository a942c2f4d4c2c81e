"""The option that says how to reach remote storage."""

import json
from typing import Any

import click

storage_option = click.option(
    "--storage-options", metavar="JSON", default="{}", envvar="SPARKLOG_STORAGE_OPTIONS",
    help="fsspec's options: endpoint_url, key, secret, ... By default the store's own places "
    "(environment, profiles) are asked.",
)  # fmt: skip


def parse_storage_options(text: str) -> dict[str, Any]:
    """Return the option's value. Raises click.BadParameter."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise click.BadParameter("want a JSON object", param_hint="'--storage-options'")
    return found
