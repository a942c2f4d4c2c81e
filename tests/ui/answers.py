"""What the pages answer, without a server."""

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp


def answer(
    site: ASGIApp, target: str, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Return the status and the body of a GET."""
    path, _, query = target.partition("?")
    messages: list[Any] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {
        "type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
    }  # fmt: skip

    async def ask() -> None:
        await site(scope, receive, send)

    # A browser that is open refuses event loops in this thread.
    thread = threading.Thread(target=lambda: asyncio.run(ask()))
    thread.start()
    thread.join()
    return messages[0]["status"], b"".join(bytes(each["body"]) for each in messages[1:])


def get(
    site: ASGIApp, target: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Any:
    """Return what a path shows: a document, or a page's text."""
    found, body = answer(site, target, headers)
    assert found == status, body
    return json.loads(body) if target.startswith("/api") else body.decode()
