"""Runs changes that clients request, with the timeout that the request names."""

import asyncio
from collections.abc import Callable
from typing import Any

from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import ErrorCode, Request, Response

TIMED_OUT = (
    ErrorCode.request_timed_out,
    "the request timed out while the change was in progress: check whether it was applied",
)


async def run_with_timeout(
    broker: Broker,
    request: Request,
    make: Callable[[Any], Response],
    late: Callable[[Any], Response],
) -> Response:
    """Return the response of `make(body)`, or `late(body)` after the request's timeout (ms).

    A timeout of 0 or less waits for the change. A change that times out or is cancelled still
    completes, and followers of the log are notified. Source: QuorumController's deadlines.
    """

    async def made() -> Response:
        try:
            return await broker.run(make, request.body)
        finally:
            await broker.partitions.refresh()

    work = asyncio.ensure_future(made())
    work.add_done_callback(_retrieve)
    timeout_ms = getattr(request.body, "timeout", 0)
    done, _ = await asyncio.wait({work}, timeout=timeout_ms / 1000 if timeout_ms > 0 else None)
    return work.result() if done else late(request.body)


def _retrieve(work: "asyncio.Future[Response]") -> None:
    """Retrieve an exception for which no caller waits, so that asyncio does not report it."""
    if not work.cancelled():
        work.exception()
