"""Parsing of stored JSON: any malformed document raises ValueError."""

import json
from typing import Any


def parse_json(raw: str | bytes | bytearray) -> Any:
    """Parse JSON. Raises: ValueError: `raw` is not JSON or is nested too deeply."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
