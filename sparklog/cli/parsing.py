"""Values of options that several commands take."""

from datetime import UTC, datetime

import click


def parse_time(text: str | None, option: str) -> int | None:
    """Return an ISO time in ms since the epoch; UTC if it has no zone. Raises BadParameter."""
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: want an ISO time", param_hint=option) from None
    return int((when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp() * 1000)
