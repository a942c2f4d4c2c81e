"""A client's connection: reads request frames and sends responses in the order of the requests.

Like a broker, a connection processes one request at a time, which bounds the memory per client.
Only producers may have several requests in progress, which are committed together. Responses are
sent in pieces, and no further request is read until the client has received its responses. Before
authentication a client can only authenticate (`sasl`), and large requests wait for memory
(`quotas`). Connections that send invalid data, or neither send nor receive, are closed with a log
line: see `check`.
"""

import asyncio
import itertools
import logging
import os
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from sparklog.clock import monotonic_ms
from sparklog.kafka.apis import Served
from sparklog.kafka.authentication import step
from sparklog.kafka.authorization import UNAUTHENTICATED_APIS, denied_response, is_allowed
from sparklog.kafka.codec import Buffer, Piece
from sparklog.kafka.messages import (
    Answer,
    Api,
    Encoded,
    ErrorCode,
    MalformedMessageError,
    Request,
    UnsupportedApiError,
    encode,
    encode_as,
    read_request,
)
from sparklog.kafka.network_metrics import NetworkMetrics
from sparklog.kafka.options import EndpointOptions
from sparklog.kafka.quotas import SMALL_BYTES, LimitedLog, Progress, RequestMemory
from sparklog.kafka.sasl import Refused, SaslServer, State
from sparklog.kafka.security import ANONYMOUS, Security
from sparklog.log.verified_batches import FileRange
from sparklog.network.tls import subject_name

PRODUCES_MAX: Final = 5  # Produce requests in progress at once; the maximum of Java clients
PIECE_BYTES: Final = 256 << 10
WAITING_BYTES: Final = 16 << 10
"""Bytes given to the transport when the socket is full."""
TURN_BYTES: Final = 2 << 20  # sent to a client before other clients get a turn
BUFFERS_MAX: Final = 64  # buffers per system call
# size of the Fetch requests that are remembered per client, at least one request
FETCHES_BYTES: Final = 4 << 10
STALLED_MS: Final = 10_000
"""When responses use too much memory, clients that received nothing for this long are closed."""
_LENGTH_BYTES: Final = 4
_LOGGER: Final = logging.getLogger("sparklog.kafka")


class Server(Protocol):
    """The interface of the endpoint that a connection uses."""

    @property
    def served(self) -> Mapping[Api, Served]:
        """Handlers of the served APIs."""

    versions: Mapping[int, tuple[int, int]]
    """The version ranges in `served`."""
    options: EndpointOptions
    security: Security
    request_memory: RequestMemory
    meters: NetworkMetrics
    lines: LimitedLog
    outgoing_bytes: int
    """Unsent response bytes of all connections; maintained by the connections."""
    requests: Counter[tuple[Api, int]]
    """Number of requests per API and version; maintained by the connections."""

    def opened(self, connection: "Connection") -> bool:
        """Register a connection; return False if it must be closed, as one connection too many."""

    def closed(self, connection: "Connection") -> None:
        """Remove a connection."""


class _PendingResponse:
    """A response's place in the order of the requests."""

    __slots__ = ("awaited", "began_ms", "buffers", "is_ready", "request", "taken")

    def __init__(self, request: Request | None, taken: int) -> None:
        """`request`: None stands for a SASL token.

        `taken`: bytes of request memory reserved for this request.
        """
        self.request, self.taken = request, taken
        self.began_ms = monotonic_ms()
        self.awaited: asyncio.Future[Answer | None] | None = None
        self.buffers: list[Piece] = []
        self.is_ready = False


class Connection(asyncio.Protocol):
    """A client's connection. Used on the event loop's thread. Attributes: see `Client`."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop = server, loop
        self.host = self.local_host = ""
        self.principal = f"User:{ANONYMOUS}"
        self.sasl: SaslServer | None = server.security.sasl()
        self.on_closed: list[Callable[[], None]] = []
        self.on_sent: list[Callable[[bool], None]] = []
        self._when_sent: list[Callable[[bool], None]] = []  # for responses that are in `_outgoing`
        self.is_closed = False
        self.is_counted = False
        """Whether the server has registered the connection."""
        self.made_ms = self.used_ms = monotonic_ms()
        """Time of creation and of the last transfer, by `monotonic_ms`."""
        self._last_fetches: dict[bytes, Request] = {}
        self._last_fetches_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self._fd = -1
        """The socket, to which responses are sent directly; -1 if the transport encrypts them."""
        self._received = bytearray()
        self._pending: deque[_PendingResponse] = deque()
        self._outgoing: deque[Piece] = deque()
        self._outgoing_bytes = 0
        self._can_write = True
        self._is_reading = True
        self._ends = False  # stop reading; close after everything was sent
        self._taken = 0  # request memory reserved for the request that is being received
        self._waits_for_memory = False
        self._progress: Progress | None = None
        self._unread_ms: float | None = None  # since when reading is paused

    # --- transport callbacks ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start serving the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.locate(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._is_tls = True
            name = subject_name(tls.getpeercert())
            if name:
                self.principal = f"User:{name}"
        elif (sock := transport.get_extra_info("socket")) is not None:
            self._fd = sock.fileno()
        # To be notified when the buffer is empty. With high=0, asyncio's TLS transport pauses
        # although no data are left to send.
        transport.set_write_buffer_limits(high=1 if self._is_tls else 0, low=0)
        if not self.is_counted and not self._server.opened(self):
            transport.abort()

    def locate(self, transport: asyncio.BaseTransport) -> None:
        """Record the addresses of both sides."""
        peer, here = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        self.host, self.local_host = (str(each[0]) if each else "" for each in (peer, here))

    def data_received(self, data: bytes) -> None:
        """Buffer received bytes and process complete requests."""
        self.used_ms = monotonic_ms()
        self._server.meters.received.add(len(data))
        if self._ends:
            return
        self._received += data
        if self._progress is not None:
            self._progress.received(len(data))
        self._advance()

    def pause_writing(self) -> None:
        """Pause sending: the client does not receive fast enough."""
        self._can_write = False

    def resume_writing(self) -> None:
        """Resume sending: the client has received everything that was sent."""
        self._can_write = True
        self.used_ms = monotonic_ms()
        self._send()
        self._advance()  # requests may have waited for the responses to be sent

    def eof_received(self) -> bool:
        """Answer the pending requests of a client that sends no more, then close."""
        self._ends = True
        pending = [each.request.api for each in self._pending if each.request is not None]
        if Api.FETCH in pending:
            return False  # a Fetch could wait for ever for records that no client will receive
        self._close_when_done()
        return not self._is_tls  # TLS transports can't be half-closed

    def connection_lost(self, exc: Exception | None) -> None:
        """Release all resources of the connection."""
        self.is_closed, self._fd = True, -1
        self._received = bytearray()
        self._outgoing.clear()
        self._server.outgoing_bytes -= self._outgoing_bytes
        self._outgoing_bytes = 0
        self._server.request_memory.forget(self)
        self._release_memory(self._taken)
        self._taken = 0
        for pending in self._pending:
            if pending.awaited is not None:  # a Fetch or JoinGroup might wait for minutes
                pending.awaited.cancel()
            self._release_memory(pending.taken)
        self._pending.clear()
        if self.is_counted:
            self._server.closed(self)
        self._when_sent += self.on_sent
        self.on_sent = []
        self._sent(False)
        for call in self.on_closed:
            call()
        self.on_closed.clear()

    @property
    def sends_files(self) -> bool:
        """Whether a response may contain file ranges.

        With TLS every byte is encrypted in this process, so file ranges are not possible.
        """
        return self._fd >= 0

    # --- authentication --------------------------------------------------------------------------

    @property
    def is_authenticated(self) -> bool:
        """Whether the client may send requests."""
        return self.sasl is None or self.sasl.authenticated

    def authenticated(self, user: str | None) -> None:
        """Record the authenticated user, or with None a failed authentication."""
        self._server.meters.authenticated(well=user is not None)
        if user is not None:
            self.principal = f"User:{user}"

    def check(self, now_ms: float) -> None:
        """Close an idle or slow connection. Called every second."""
        options = self._server.options
        setup_ms = options.connections_setup_timeout_ms
        if self._ends and now_ms - self.used_ms > setup_ms and not self._pending:
            self.end("the client does not receive its responses", reason="stalled")
        elif not self.is_authenticated and self._is_new and now_ms - self.made_ms > setup_ms:
            self.end("the client did not authenticate in time", reason="authentication")
        elif self._is_reading and self._progress and self._progress.is_too_slow(now_ms, setup_ms):
            self.end(f"a request was not complete after {setup_ms} ms", reason="slow")
        # A client that waits for a response, such as that of JoinGroup, is not idle.
        elif now_ms - self.used_ms > options.connections_max_idle_ms and not (
            self._pending and self._can_write
        ):
            self.end("the connection is idle (connections.max.idle.ms)", reason="idle")

    @property
    def _is_new(self) -> bool:
        return self.sasl is not None and self.sasl.user is None

    def stalled_ms(self, now_ms: float) -> float:
        """Return for how long (ms) pending data has not moved; 0 if none is pending."""
        return now_ms - self.used_ms if self._outgoing and not self._can_write else 0

    def drop(self) -> int:
        """Discard unsent data; return its size, which the caller subtracts from the total."""
        dropped, self._outgoing_bytes = self._outgoing_bytes, 0
        self._outgoing.clear()
        return dropped

    def _rights_error(self, request: Request) -> str | None:
        """Return the reason if the client may not send a request."""
        sasl = self.sasl
        if sasl is not None and request.api not in UNAUTHENTICATED_APIS:
            if not sasl.authenticated:
                return f"the client sent {request.api.name} before it authenticated"
            if sasl.expired(monotonic_ms()):
                return "the session has expired (connections.max.reauth.ms)"
        return None

    # --- requests ----------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start the complete requests that may start; pause reading if none may."""
        while not self.is_closed and not self._ends:
            size = self._announced_bytes()
            if size is None:
                return
            if len(self._received) < _LENGTH_BYTES + size:
                self._set_reading(self._has_memory(size))
                return
            if not self._may_begin():
                self._set_reading(False)
                return
            self._progress = None
            self._begin(self._cut(size))

    def _announced_bytes(self) -> int | None:
        """Return the size of the next request, or None if the size is incomplete or invalid."""
        if not self._received:
            self._progress = None
        elif self._progress is None:
            self._progress = Progress(monotonic_ms())
            self._progress.received(len(self._received))
        if len(self._received) < _LENGTH_BYTES:
            self._set_reading(True)
            return None
        options = self._server.options
        size_max = options.socket_request_max_bytes
        # Strangers get little memory. Source: SaslServerAuthenticator.
        if not self.is_authenticated:
            size_max = min(size_max, options.sasl_server_max_receive_bytes)
        size = int.from_bytes(self._received[:_LENGTH_BYTES], "big", signed=True)
        if not 0 < size <= size_max:
            protocol = _guess_protocol(self._received)
            self.close(protocol or f"a request has {size} bytes; at most {size_max} are allowed")
            return None
        return size

    def _has_memory(self, size: int) -> bool:
        """Reserve memory for a large request before it arrives. Return False while none is free."""
        if size <= SMALL_BYTES or self._taken:
            return True
        request_memory = self._server.request_memory
        if not self._waits_for_memory and request_memory.take(self, size, self._memory_granted):
            self._taken = size
            return True
        self._waits_for_memory = True
        return False

    def _memory_granted(self) -> None:
        self._waits_for_memory = False
        self._taken = int.from_bytes(self._received[:_LENGTH_BYTES], "big")
        # Not a direct call: this runs inside `release` of another connection.
        self._loop.call_soon(self._advance)

    def _release_memory(self, taken: int) -> None:
        if taken:
            self._server.request_memory.release(taken)

    def _cut(self, size: int) -> memoryview:
        """Remove and return the next request. Large requests are not copied."""
        end = _LENGTH_BYTES + size
        if size > SMALL_BYTES:
            whole = memoryview(self._received).toreadonly()
            self._received = bytearray(whole[end:])
            return whole[_LENGTH_BYTES:end]
        frame = memoryview(bytes(self._received[_LENGTH_BYTES:end]))
        del self._received[:end]
        return frame

    def _may_begin(self) -> bool:
        if self._outgoing:  # a client that does not receive could otherwise queue responses
            return False
        if not self._pending:
            return True
        api_key = int.from_bytes(self._received[_LENGTH_BYTES : _LENGTH_BYTES + 2], "big")
        return (
            api_key == Api.PRODUCE
            and len(self._pending) < PRODUCES_MAX
            and all(
                pending.request is not None and pending.request.api is Api.PRODUCE
                for pending in self._pending
            )
        )

    def _set_reading(self, wanted: bool) -> None:
        if self._transport is None or wanted == self._is_reading or self.is_closed:
            return
        self._is_reading = wanted
        now_ms = monotonic_ms()
        if wanted:
            self._transport.resume_reading()
            if self._progress is not None and self._unread_ms is not None:
                self._progress.paused(now_ms - self._unread_ms)
            self._unread_ms = None
        else:
            self._transport.pause_reading()
            self._unread_ms = now_ms

    def _begin(self, frame: memoryview) -> None:
        taken, self._taken = self._taken, 0
        sasl = self.sasl
        if sasl is not None and sasl.raw and sasl.state is State.TOKENS:
            self._begin_token(sasl, bytes(frame), taken)
            return
        try:
            request = self._repeated_fetch(frame)
            if request is None:
                request = read_request(frame, self._server.versions, self)
            unknown = self._rights_error(request)
        except UnsupportedApiError as error:
            self._release_memory(taken)
            self._refuse(error)
            return
        except MalformedMessageError as error:
            self._release_memory(taken)
            self.close(str(error))
            return
        # Appended before the request is handled: the handler may finish at once, and responses must
        # have the order of the requests.
        pending = _PendingResponse(request, taken)
        if request.api is Api.FETCH:
            self._remember(frame, request)
        self._pending.append(pending)
        if unknown is not None:
            self.end(unknown, reason="authentication")
            return
        self._server.requests[request.api, request.version] += 1
        rights = self._server.security.rights(self.principal.removeprefix("User:"))
        if not is_allowed(request.api, rights):
            self._deny(pending, request)
            return
        try:
            result = self._server.served[request.api].handle(request)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the endpoint
            self._failed(pending, error)
            return
        if isinstance(result, Awaitable):
            self._await(pending, result)
        else:
            self._ready(pending, result)

    def _await(self, pending: _PendingResponse, result: Awaitable[Answer | None]) -> None:
        pending.awaited = asyncio.ensure_future(result)
        pending.awaited.add_done_callback(lambda done: self._done(pending, done))

    def _deny(self, pending: _PendingResponse, request: Request) -> None:
        """Refuse a request that the user is not authorized to send."""
        self._server.meters.refused(request.api)
        response = denied_response(request)
        if response is None:
            self.end(
                f"{self.principal} is not authorized for {request.api.name}", reason="authorization"
            )
        else:
            self._ready(pending, response)

    def _begin_token(self, sasl: SaslServer, token: bytes, taken: int) -> None:
        """Process a bare SASL token, which follows a SaslHandshake of version 0."""

        async def work() -> Answer | None:
            try:
                reply = await step(self, sasl, token)
            except Refused as refused:
                self._ends = True
                options = self._server.options
                await asyncio.sleep(options.connection_failed_authentication_delay_ms / 1000)
                self.end(refused.message, reason="authentication")
                return None
            pending.buffers = [len(reply.token).to_bytes(4, "big") + reply.token]
            return None

        pending = _PendingResponse(None, taken)
        self._pending.append(pending)
        self._await(pending, work())

    def _repeated_fetch(self, frame: memoryview) -> Request | None:
        """Return a request that equals an earlier Fetch, with the same `body`.

        A waiting consumer repeats its Fetch, which then does not have to be parsed again.
        """
        if not self._last_fetches:
            return None
        last = self._last_fetches.get(_without_correlation_id(frame))
        if last is None:
            return None
        return Request(
            last.api, last.version, int.from_bytes(frame[4:8], "big", signed=True),
            last.client_id, last.body, last.size, self,
        )  # fmt: skip

    def _remember(self, frame: memoryview, request: Request) -> None:
        """Remember a Fetch request. Several, because librdkafka changes the partition order."""
        known, content = self._last_fetches, _without_correlation_id(frame)
        if content in known:
            return
        known[content] = request
        self._last_fetches_bytes += len(content)
        while self._last_fetches_bytes > FETCHES_BYTES and len(known) > 1:
            oldest = next(iter(known))
            del known[oldest]
            self._last_fetches_bytes -= len(oldest)

    def _refuse(self, error: UnsupportedApiError) -> None:
        """Answer an unknown ApiVersions version in version 0 (KIP-511); close for other APIs."""
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
        self._queue(encode_as(Api.API_VERSIONS, 0, error.correlation_id, response))
        self._send()

    def _done(self, pending: _PendingResponse, done: "asyncio.Future[Answer | None]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._failed(pending, error)
        else:
            self._ready(pending, done.result())

    def _failed(self, pending: _PendingResponse, error: BaseException) -> None:
        request = pending.request
        name = "a token" if request is None else f"{request.api.name} {request.version}"
        _LOGGER.error("%s of %s failed", name, self.host, exc_info=error)
        self.end("the request of the client failed in the endpoint", reason="failure")

    def _ready(self, pending: _PendingResponse, response: Answer | None) -> None:
        if self.is_closed:
            return
        request = pending.request
        if request is not None:
            if response is not None:
                try:
                    pending.buffers = encode(request, response)
                except Exception as error:  # noqa: BLE001 - as in _begin
                    self._failed(pending, error)
                    return
            took_ms = monotonic_ms() - pending.began_ms
            counted = None if isinstance(response, Encoded) else response
            self._server.meters.answered(request.api, request.version, counted, took_ms)
        pending.is_ready = True
        while self._pending and self._pending[0].is_ready:
            done = self._pending.popleft()
            self._queue(done.buffers)
            self._release_memory(done.taken)
        # Only now, because everything sent so far belongs to earlier responses.
        self._when_sent += self.on_sent
        self.on_sent = []
        self._send()
        if not self._outgoing and self._received:
            self._loop.call_soon(self._advance)

    # --- responses -------------------------------------------------------------------------------

    def _queue(self, buffers: list[Piece]) -> None:
        size = sum(map(len, buffers))
        self._outgoing.extend(buffers)
        self._outgoing_bytes += size
        self._server.outgoing_bytes += size

    def _send(self) -> None:
        """Send pieces until the client receives no more, or other clients get a turn."""
        transport = self._transport
        if transport is None or self.is_closed:
            return
        turn_bytes = TURN_BYTES
        while self._outgoing and self._can_write and not transport.is_closing():
            if self._fd < 0:
                self._write(transport, PIECE_BYTES)
            elif turn_bytes > 0:
                turn_bytes -= self._send_directly(transport, turn_bytes)
            else:  # other clients get their turn
                self._loop.call_soon(self._continue_sending)
                return
        if not self._outgoing:
            if self._can_write:
                self._sent(not transport.get_write_buffer_size())
            self._close_when_done()

    def _continue_sending(self) -> None:
        if self._can_write:
            self._send()
            self._advance()

    def _write(self, transport: asyncio.Transport, size_max: int) -> None:
        """Give the transport a piece.

        The transport copies bytes that the socket does not accept at once.
        """
        piece = self._outgoing.popleft()
        data: Buffer
        rest: Piece
        if isinstance(piece, FileRange):
            data, rest = piece.read(size_max), piece
        else:
            view = memoryview(piece)
            data, rest = view[:size_max], view[size_max:]
        if not data:
            self._end_truncated()
            return
        if rest:
            self._outgoing.appendleft(rest)
        self._count_sent(len(data))
        transport.write(data)

    def _send_directly(self, transport: asyncio.Transport, size_max: int) -> int:
        """Send pieces to the kernel without copying. Return the number of bytes sent.

        The transport buffers no data, so the order is preserved. When the socket is full, the
        transport gets a small piece, because it reports when the socket has accepted that.
        """
        first = self._outgoing[0]
        try:
            if isinstance(first, FileRange):
                sent = first.send(self._fd, size_max)
            else:
                sent = self._send_buffers()
        except BlockingIOError:
            self._write(transport, WAITING_BYTES)
            return 0
        except ConnectionError:  # the client has disconnected
            transport.abort()
            return 0
        except OSError as error:
            self.end(f"the response can't be sent: {error}", reason="failure")
            return 0
        if not sent:
            self._end_truncated()
        elif isinstance(first, FileRange):
            self._count_sent(sent)
            if not first:
                self._outgoing.popleft()
        return sent

    def _send_buffers(self) -> int:
        """Send the leading pieces that are in memory with a single system call."""
        buffers: list[Buffer] = []
        for piece in itertools.islice(self._outgoing, BUFFERS_MAX):
            if isinstance(piece, FileRange):
                break
            buffers.append(piece)
        sent = left = os.writev(self._fd, buffers)
        self._count_sent(sent)
        for buffer in buffers:
            if left < len(buffer):
                self._outgoing[0] = memoryview(buffer)[left:]
                break
            left -= len(self._outgoing.popleft())
        return sent

    def _end_truncated(self) -> None:
        """Close the connection, because a part of the announced response can't be sent."""
        self.end("a segment was truncated while it was being sent", reason="failure")

    def _count_sent(self, size: int) -> None:
        self._outgoing_bytes -= size
        self._server.outgoing_bytes -= size
        self._server.meters.sent.add(size)

    def _sent(self, whole: bool) -> None:
        """Call the waiting callbacks once all data was sent.

        `whole`: the transport has no data left.
        """
        calls, self._when_sent = self._when_sent, []
        for call in calls:
            call(whole)

    def _close_when_done(self) -> None:
        if self._ends and not self._pending and not self._outgoing and self._transport is not None:
            self._transport.close()  # sends the buffered data first

    def close_when_answered(self, why: str, *, reason: str) -> None:
        """Stop reading, and close the connection after pending responses were sent."""
        self._log_end(why, reason)
        self._ends = True
        self._set_reading(False)

    def close(self, why: str) -> None:
        """Close the connection at once after a protocol error."""
        self.end(why, reason="protocol")

    def end(self, why: str, *, reason: str) -> None:
        """Close the connection at once; `reason`: a value of the metric's label."""
        if not self.is_closed and self._transport is not None:
            self._log_end(why, reason)
            self._ends = True
            self._transport.abort()

    def _log_end(self, why: str, reason: str) -> None:
        if not self._transport or self._transport.is_closing():
            return
        self._server.meters.closed(reason)
        user = "" if self.principal.endswith(f":{ANONYMOUS}") else f" ({self.principal})"
        level = logging.INFO if reason in ("idle", "end") else logging.WARNING
        self._server.lines.log(
            level, "connection of %s%s is closed: %s", self.host, user, why.strip()[:500]
        )


def _without_correlation_id(frame: memoryview) -> bytes:
    """Return a request's bytes without the correlation id, which differs in each request."""
    return b"".join((frame[:4], frame[8:]))


def _guess_protocol(begin: bytearray) -> str | None:
    """Return a hint if the received bytes are another protocol's."""
    if begin[:2] == b"\x16\x03":
        return (
            "the client uses TLS, which is not enabled here: set ssl.keystore.location, or set the "
            "client's security.protocol to PLAINTEXT or SASL_PLAINTEXT"
        )
    if bytes(begin[:4]) in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"CONN", b"PRI "):
        return "the client uses HTTP; this port serves Kafka's protocol, metrics have another"
    return None
