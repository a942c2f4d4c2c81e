"""SaslHandshake and SaslAuthenticate. The exchange itself is in `sasl`. Source: KafkaApis."""

import asyncio
from functools import partial
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.client import Client
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.kafka.sasl import Answer, Failure, Refused, SaslServer

_CODES: Final = {each: ErrorCode[each.name.lower()] for each in Failure}


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handlers of SaslHandshake and SaslAuthenticate."""
    authentication = Authentication(broker.options.connection_failed_authentication_delay_ms)
    return {
        Api.SASL_HANDSHAKE: Served((0, 1), authentication.handshake),
        Api.SASL_AUTHENTICATE: Served((0, 2), authentication.authenticate),
    }


class Authentication:
    """Authenticates connections. A failure is answered after a delay and closes the connection."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms

    async def handshake(self, request: Request) -> Response:
        """Answer SaslHandshake."""
        sasl = request.connection.sasl
        if sasl is None:
            return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
        try:
            sasl.handshake(request.body.mechanism, version=request.version)
        except Refused as refused:
            await self._fail(request, refused)
            return {"error_code": _CODES[refused.failure], "mechanisms": list(sasl.mechanisms)}
        return {"error_code": ErrorCode.none, "mechanisms": list(sasl.mechanisms)}

    async def authenticate(self, request: Request) -> Response:
        """Answer SaslAuthenticate."""
        sasl = request.connection.sasl
        if sasl is None:
            return {
                "error_code": ErrorCode.illegal_sasl_state,
                "error_message": "SASL is not enabled: set security.protocol to PLAINTEXT or SSL",
            }
        try:
            answer = await step(request.connection, sasl, bytes(request.body.auth_bytes))
        except Refused as refused:
            await self._fail(request, refused)
            return {
                "error_code": _CODES[refused.failure],
                "error_message": refused.message,
            }
        return {
            "error_code": ErrorCode.none,
            "auth_bytes": answer.token,
            "session_lifetime": answer.session_lifetime_ms,
        }

    async def _fail(self, request: Request, refused: Refused) -> None:
        request.connection.close_when_answered(refused.message, reason="authentication")
        # As in a broker, the delay slows down clients that guess passwords or retry in a loop.
        await asyncio.sleep(self._delay_ms / 1000)


async def step(connection: Client, sasl: SaslServer, token: bytes) -> Answer:
    """Process a SASL token in the SASL pool.

    Raises:
        Refused: The authentication failed.
    """
    # PBKDF2 of a PLAIN login takes up to half a second of CPU time, too long for the event loop.
    work = partial(sasl.step, token, now_ms=monotonic_ms())
    try:
        answer = await asyncio.get_running_loop().run_in_executor(sasl.pool, work)
    except Refused:
        connection.authenticated(None)
        raise
    if sasl.authenticated:
        connection.authenticated(sasl.user)
    return answer
