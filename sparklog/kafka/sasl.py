"""`SaslServer`: the SASL exchange of a connection, including re-authentication (KIP-368).

    SaslHandshake v1, SaslAuthenticate ...     tokens in Kafka requests
    SaslHandshake v0, token, token ...         bare tokens, each with a length prefix

The class does no I/O. The caller sends the tokens, and after `Refused` closes the connection with a
delay of connection.failed.authentication.delay.ms. Errors for clients reveal no information about
users.
Source: SaslServerAuthenticator.java, PlainSaslServer.java, ScramSaslServer.java (Kafka 4.1), which
also have the texts; RFC 5802 by the library scramp.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NoReturn, Protocol

from sparklog.errors import InvalidRequestError
from sparklog.extras import needed
from sparklog.kafka.credentials import Mechanism
from sparklog.kafka.users import Users

with needed(InvalidRequestError):
    from scramp import ScramException, ScramMechanism

# a name has up to 255 bytes, a nonce about 40; passwords may be long
TOKEN_BYTES_MAX: Final = 64 << 10


class State(Enum):
    """State of a connection's authentication."""

    HANDSHAKE = auto()
    """Expects a SaslHandshake (or ApiVersions)."""
    TOKENS = auto()
    """Expects tokens of the mechanism."""
    DONE = auto()
    """Authenticated."""
    FAILED = auto()
    """Failed; the connection is closed after a delay."""


class Failure(Enum):
    """Reasons for a refusal, by the names of Kafka's error codes."""

    UNSUPPORTED_SASL_MECHANISM = auto()
    SASL_AUTHENTICATION_FAILED = auto()
    ILLEGAL_SASL_STATE = auto()


class Refused(Exception):
    """An authentication failed. The client gets `failure`, and the connection is closed."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure, self.message = failure, message


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's `token`; with the last token also the length of the session (ms)."""

    token: bytes
    session_lifetime_ms: int = 0


class Exchange(Protocol):
    """An authentication attempt with a mechanism."""

    def step(self, token: bytes) -> tuple[bytes, str | None]:
        """Return the server's token, and the user's name after the last token.

        Raises:
            _BadCredentials: The authentication failed.
        """


class _BadCredentials(Exception):
    """Wrong credentials. A message, if any, may be sent to the client."""


class SaslServer:
    """The authentication state of a connection. `user`: the authenticated name, None before.

    `step` may use 100 ms of CPU time (PLAIN) and checks the users' file, so it must not run on the
    event loop's thread. Not thread-safe.
    """

    def __init__(
        self,
        users: Users,
        mechanisms: Sequence[Mechanism],
        *,
        max_reauth_ms: int = 0,
        pool: Executor | None = None,
    ) -> None:
        """Create the state of a new connection.

        Args:
            users: The users of the endpoint.
            mechanisms: The enabled mechanisms.
            max_reauth_ms: The length of a session (connections.max.reauth.ms). 0: unlimited.
            pool: The pool in which the caller runs `step`.
        """
        self.users, self.mechanisms, self.pool = users, tuple(mechanisms), pool
        self.state = State.HANDSHAKE
        self.user: str | None = None
        self.raw = False
        self._max_reauth_ms = max_reauth_ms
        self._mechanism: Mechanism | None = None
        self._exchange: Exchange | None = None
        self._expires_ms: float | None = None

    @property
    def authenticated(self) -> bool:
        """Whether requests are served; also during re-authentication, as in Kafka."""
        return self.state is State.DONE

    def expired(self, now_ms: float) -> bool:
        """Return True if the session has expired, so that only a SaslHandshake may follow."""
        return self._expires_ms is not None and now_ms >= self._expires_ms

    def handshake(self, mechanism: str, *, version: int) -> None:
        """Process a SaslHandshake.

        Raises:
            Refused: The mechanism is not possible. The state is FAILED.
        """
        if self.state not in (State.HANDSHAKE, State.DONE):
            self._refuse(Failure.ILLEGAL_SASL_STATE, "SaslHandshake received during a handshake")
        if mechanism not in self.mechanisms:
            self._refuse(
                Failure.UNSUPPORTED_SASL_MECHANISM,
                f"Unsupported SASL mechanism {mechanism[:64]}",
            )
        if self._mechanism not in (None, mechanism):  # a session can't change its mechanism
            self._refuse(
                Failure.SASL_AUTHENTICATION_FAILED,
                f"SASL mechanism '{mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self._mechanism}'",
            )
        self._mechanism = Mechanism(mechanism)
        self.raw = version == 0
        plain = self._mechanism is Mechanism.PLAIN
        self._exchange = (
            _Plain(self.users) if plain else _Scram(self.users, self._mechanism)
        )
        self.state = State.TOKENS

    def step(self, token: bytes, *, now_ms: float) -> Answer:
        """Process a token of the client.

        Raises:
            Refused: The authentication failed. The state is FAILED.
        """
        if self.state is not State.TOKENS or self._exchange is None:
            message = (
                "SaslAuthenticate request received after successful authentication"
                if self.state is State.DONE
                else "SaslAuthenticate request received before a SaslHandshake"
            )
            self._refuse(Failure.ILLEGAL_SASL_STATE, message)
        again = "authentication" if self.user is None else "re-authentication"
        try:
            if len(token) > TOKEN_BYTES_MAX:
                raise _BadCredentials
            # A password that was changed or removed a moment ago must not work any more.
            self.users.refresh()
            answer, name = self._exchange.step(token)
        except _BadCredentials as error:
            message = str(error) or (
                f"Authentication failed during {again} due to invalid credentials "
                f"with SASL mechanism {self._mechanism}"
            )
            self._refuse(Failure.SASL_AUTHENTICATION_FAILED, message)
        if name is None:
            return Answer(answer)
        # KIP-368: re-authentication must not change the user of a connection.
        if self.user not in (None, name):
            self._refuse(
                Failure.SASL_AUTHENTICATION_FAILED,
                f"Cannot change principals during re-authentication from User.{self.user}: "
                f"User.{name}",
            )
        self.user, self.state, self._exchange = name, State.DONE, None
        self._expires_ms = now_ms + self._max_reauth_ms if self._max_reauth_ms else None
        return Answer(answer, self._max_reauth_ms)

    def _refuse(self, failure: Failure, message: str) -> NoReturn:
        self.state, self._exchange = State.FAILED, None
        raise Refused(failure, message)


class _Plain:
    """RFC 4616: [authzid] NUL name NUL password, in a single token."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def step(self, token: bytes) -> tuple[bytes, str | None]:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise _BadCredentials from None
        if len(parts) != 3:
            raise _BadCredentials(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        wanted, name, password = parts
        if not name:
            raise _BadCredentials("Authentication failed: username not specified")
        if not password:
            raise _BadCredentials("Authentication failed: password not specified")
        # An unknown user gets a decoy, so that the response takes as long as for a known user.
        credential, exists = self._users.credential(name, Mechanism.PLAIN)
        if not (credential.matches(password) and exists):
            raise _BadCredentials("Authentication failed: Invalid username or password")
        if wanted not in ("", name):
            raise _BadCredentials(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return b"", name


class _Scram:
    """RFC 5802: the client's first message, then its proof."""

    def __init__(self, users: Users, mechanism: Mechanism, nonce: str | None = None) -> None:
        self._users, self._mechanism = users, mechanism
        self._name: str | None = None
        self._exists = False
        self._own_nonce = ""
        self._server: Any = ScramMechanism(mechanism.value).make_server(
            self._credential, s_nonce=nonce
        )

    def step(self, token: bytes) -> tuple[bytes, str | None]:
        try:
            text = token.decode()
            if self._name is None:
                self._server.set_client_first(text)
                self._own_nonce = str(self._server.s_nonce)
                return self._server.get_server_first().encode(), None
            self._accept_doubled_nonce(text)
            self._server.set_client_final(text)
            if not self._exists:  # defence in depth: a decoy's keys match no password
                raise _BadCredentials
            return self._server.get_server_final().encode(), self._name
        except (ScramException, UnicodeError):
            raise _BadCredentials from None

    def _accept_doubled_nonce(self, text: str) -> None:
        """Correct the nonce of librdkafka before 2.6.1 (Debian's kcat).

        That nonce contains the client's part twice (confluentinc/librdkafka#4895), which Kafka
        3.8.1 to 3.9 accepts. The server's part is complete and the proof covers the sent bytes, so
        a replay is impossible.
        """
        whole = str(self._server.nonce)
        begin = whole.removesuffix(self._own_nonce)
        if f",r={begin}{whole},p=" in text:
            self._server.nonce = type(self._server.nonce)(begin + whole)

    def _credential(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        found, self._exists = self._users.credential(name, self._mechanism)
        self._name = name
        return found.salt, found.stored_key, found.server_key, found.iterations
