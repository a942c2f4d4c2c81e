"""JSON that was read from storage: whatever it is, it fails as ValueError."""

import json
from typing import Any


def parse_json(raw: str | bytes | bytearray) -> Any:
    """Return the document. Raises ValueError: `raw` isn't JSON or is nested too deeply."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
