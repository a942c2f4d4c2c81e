"""One client's connection: frames in, answers out in the order of the requests.

As a broker does, a connection works on one request at a time, so that no client can ask for more
than it takes; producers alone may have several under way, which are then committed together. What
is to be sent leaves in pieces, and nothing more is read while a client doesn't take its answers.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from sparklog.clock import monotonic_ms
from sparklog.kafka.apis import Response, Served
from sparklog.kafka.codec import Buffer
from sparklog.kafka.messages import (
    Api,
    ErrorCode,
    MalformedMessageError,
    Request,
    UnsupportedApiError,
    encode,
    encode_as,
    read_request,
)

PRODUCES_MAX: Final = 5  # that are under way at once; what Java clients send at most
PIECE_BYTES: Final = 256 << 10
_LENGTH_BYTES: Final = 4
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class Server(Protocol):
    """What a connection asks of the endpoint that it belongs to."""

    @property
    def served(self) -> Mapping[Api, Served]:
        """What is answered."""

    versions: Mapping[int, tuple[int, int]]
    """Those of `served`."""
    request_max_bytes: int
    requests: Counter[tuple[Api, int]]
    """How many requests there were of each API and version; counted here."""

    def opened(self, connection: "Connection") -> bool:
        """Tell whether there is room for it; it is closed if there isn't."""

    def closed(self, connection: "Connection") -> None:
        """Forget it."""


class _Answer:
    """The place of an answer in the order of the requests."""

    __slots__ = ("awaited", "buffers", "is_ready", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.awaited: asyncio.Future[Response | None] | None = None
        self.buffers: list[Buffer] = []
        self.is_ready = False


class Connection(asyncio.Protocol):
    """A connection; all of it on the loop's thread.

    `host`: the client's address. `principal`: as whom it has authenticated. `on_closed`: called
    once when it has ended, for whatever reason.
    """

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop = server, loop
        self.host = ""
        self.principal = "User:ANONYMOUS"
        self.on_closed: list[Callable[[], None]] = []
        self.is_closed = False
        self.used_ms = monotonic_ms()
        """When something came or went last, by `monotonic_ms`."""
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answers: deque[_Answer] = deque()
        self._outgoing: deque[Buffer] = deque()
        self._can_write = True
        self._is_reading = True
        self._ends = False  # no more is read; closes when all is sent

    # --- the transport's calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        transport.set_write_buffer_limits(high=0)  # to be told when all is gone
        if not self._server.opened(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and work on the requests that are whole."""
        self.used_ms = monotonic_ms()
        if self._ends:
            return
        self._received += data
        self._advance()

    def pause_writing(self) -> None:
        """Hold back: the client doesn't take what was sent."""
        self._can_write = False

    def resume_writing(self) -> None:
        """Go on: the client has taken all that was sent."""
        self._can_write = True
        self.used_ms = monotonic_ms()
        self._send()
        self._advance()

    def eof_received(self) -> bool:
        """Answer what was asked before a client closed its side, then close."""
        self._ends = True
        self._close_when_done()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of all."""
        self.is_closed = True
        self._received.clear()
        self._outgoing.clear()
        for answer in self._answers:
            if answer.awaited is not None:
                answer.awaited.cancel()
        self._answers.clear()
        self._server.closed(self)
        for call in self.on_closed:
            call()
        self.on_closed.clear()

    # --- requests ----------------------------------------------------------------------------

    def _advance(self) -> None:
        """Begin the requests that are whole and may begin; stop reading where none may."""
        while not self.is_closed and not self._ends:
            size = self._frame_size()
            if size is None:
                self._read_on(True)
                return
            if not self._may_begin():
                self._read_on(False)
                return
            frame = memoryview(bytes(self._received[_LENGTH_BYTES : _LENGTH_BYTES + size]))
            del self._received[: _LENGTH_BYTES + size]
            self._begin(frame)

    def _frame_size(self) -> int | None:
        """Return the size of the next request; None if it isn't whole yet."""
        if len(self._received) < _LENGTH_BYTES:
            return None
        size = int.from_bytes(self._received[:_LENGTH_BYTES], "big", signed=True)
        if not 0 < size <= self._server.request_max_bytes:
            self.close(f"a request of {size} bytes; {self._server.request_max_bytes} are allowed")
            return None
        return size if len(self._received) >= _LENGTH_BYTES + size else None

    def _may_begin(self) -> bool:
        if self._outgoing:
            return False
        if not self._answers:
            return True
        api_key = int.from_bytes(self._received[_LENGTH_BYTES : _LENGTH_BYTES + 2], "big")
        return (
            api_key == Api.PRODUCE
            and len(self._answers) < PRODUCES_MAX
            and all(answer.request.api is Api.PRODUCE for answer in self._answers)
        )

    def _read_on(self, wanted: bool) -> None:
        if self._transport is None or wanted == self._is_reading or self.is_closed:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _begin(self, frame: memoryview) -> None:
        served = self._server.served
        try:
            request = read_request(frame, self._server.versions, self)
        except UnsupportedApiError as error:
            self._refuse(error)
            return
        except MalformedMessageError as error:
            self.close(str(error))
            return
        self._server.requests[request.api, request.version] += 1
        answer = _Answer(request)
        self._answers.append(answer)
        try:
            result = served[request.api].handle(request)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the endpoint
            self._failed(answer, error)
            return
        if isinstance(result, Awaitable):
            answer.awaited = asyncio.ensure_future(result)
            answer.awaited.add_done_callback(lambda done: self._done(answer, done))
        else:
            self._ready(answer, result)

    def _refuse(self, error: UnsupportedApiError) -> None:
        """Answer ApiVersions of an unknown version in version 0 (KIP-511); close for all else."""
        if error.api_key != Api.API_VERSIONS:
            self.close(str(error))
            return
        served = self._server.served[Api.API_VERSIONS].versions
        response = {
            "error_code": ErrorCode.unsupported_version,
            "api_keys": [
                {"api_key": Api.API_VERSIONS, "min_version": served[0], "max_version": served[1]}
            ],
        }
        self._outgoing.extend(encode_as(Api.API_VERSIONS, 0, error.correlation_id, response))
        self._send()

    def _done(self, answer: _Answer, done: "asyncio.Future[Response | None]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._failed(answer, error)
        else:
            self._ready(answer, done.result())

    def _failed(self, answer: _Answer, error: BaseException) -> None:
        request = answer.request
        _LOGGER.error(
            "%s %d of %s (%s) failed", request.api.name, request.version, self.host,
            request.client_id, exc_info=error,
        )  # fmt: skip
        self.close("its request failed here")

    def _ready(self, answer: _Answer, response: Response | None) -> None:
        if self.is_closed:
            return
        if response is not None:
            try:
                answer.buffers = encode(answer.request, response)
            except Exception as error:  # noqa: BLE001 - as in _begin
                self._failed(answer, error)
                return
        answer.is_ready = True
        while self._answers and self._answers[0].is_ready:
            self._outgoing.extend(self._answers.popleft().buffers)
        self._send()
        if not self._outgoing and self._received:
            self._loop.call_soon(self._advance)

    # --- answers -----------------------------------------------------------------------------

    def _send(self) -> None:
        """Hand out pieces as long as the client takes them."""
        transport = self._transport
        if transport is None or self.is_closed:
            return
        while self._outgoing and self._can_write:
            data = self._outgoing.popleft()
            if len(data) > PIECE_BYTES:
                view = memoryview(data)
                self._outgoing.appendleft(view[PIECE_BYTES:])
                data = view[:PIECE_BYTES]
            transport.write(data)
        if not self._outgoing:
            self._close_when_done()

    def _close_when_done(self) -> None:
        if self._ends and not self._answers and not self._outgoing and self._transport is not None:
            self._transport.close()  # what it still holds is sent

    def close(self, why: str) -> None:
        """End it at once: nothing sensible can come any more."""
        if not self.is_closed and self._transport is not None:
            _LOGGER.info("connection of %s is closed: %s", self.host, why)
            self._ends = True
            self._transport.abort()
