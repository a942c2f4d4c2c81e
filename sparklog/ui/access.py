"""Access control of the pages: tokens, session cookies and the accepted names of this host.

A server that listens on loopback only needs no token, because other hosts can't reach it. On other
addresses a token is required. A client sends the token with each request
(`Authorization: Bearer`), or once in the form at /login, which sets a session cookie. The cookie
contains the end of the session and an HMAC of it, not the token, because browsers send the cookies
of a host to all ports of that host. Changing the token ends all sessions.

On loopback, requests with an unknown name in the Host header are rejected: an attacker can make
a domain name resolve to this host (DNS rebinding), and read the pages with a script of the domain.
"""

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.network.addresses import Address, is_loopback, parse_address
from sparklog.network.tls import TlsFiles, TlsNames

TOKEN_VARIABLE: Final = "SPARKLOG_UI_TOKEN"  # noqa: S105
"""The environment variable that contains the token, used without --ui-token-file."""
TOKEN_LENGTH_MIN: Final = 16
SESSION_MS: Final = 12 * 3_600_000
_TOKEN_LENGTH_MAX: Final = 4096
_TLS_NAMES: Final = TlsNames(
    certificate="--ui-certificate", key="--ui-key",
    password="a key without one",  # noqa: S106
)  # fmt: skip
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_HOST: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<name>[^:\[\]]+))(?::\d+)?")
_SESSION: Final = re.compile(r"(\d{1,15})\.([0-9a-f]{64})")


class Access:
    """Checks tokens, session cookies and Host headers of requests. Thread-safe."""

    def __init__(
        self,
        addresses: Sequence[str] = ("127.0.0.1",),
        *,
        token: str | None = None,
        names: Sequence[str] = (),
        secure: bool = False,
        clock: Clock = system_clock,
    ) -> None:
        """Create the access control of a server.

        Args:
            addresses: The addresses on which the server listens.
            token: The token that clients must send, or None for access without a token.
            names: Further accepted names of this host, such as the name of a proxy.
            secure: Whether the connections are encrypted. Cookies are then restricted to HTTPS.
            clock: The clock for the end of sessions.
        """
        self._token = None if token is None else token.encode()
        self._local = is_loopback(addresses)
        self._names = {name.lower() for name in (*_LOOPBACK, *addresses, *names)}
        self._secure, self._clock = secure, clock

    @property
    def asks(self) -> bool:
        """Whether a token is required."""
        return self._token is not None

    def is_own_name(self, host: str) -> bool:
        """Return whether a Host header contains an accepted name of this host.

        If the server does not listen on loopback only, every name is accepted: the token protects
        the pages there.
        """
        found = _HOST.fullmatch(host)
        name = "" if found is None else found["six"] or found["name"]
        return not self._local or name.lower() in self._names

    def admits(self, headers: Mapping[str, str], port: int) -> bool:
        """Return whether a request has the token or a valid session cookie.

        Args:
            headers: The headers of the request, by lower-case name.
            port: The port of this server, which is part of the cookie's name.
        """
        if self._token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            raw = given.strip().encode("latin-1", "replace")  # ASGI decodes headers as latin-1
            return self.is_token(raw.decode("utf-8", "replace"))
        # Not SimpleCookie: it rejects all cookies if the cookie of another port is malformed, and
        # parses some inputs slowly.
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        cookies = {name: value for name, _, value in pairs}
        session = _SESSION.fullmatch(cookies.get(self._cookie_name(port), ""))
        if session is None:
            return False
        signed = hmac.compare_digest(self._signature(int(session[1])), session[2])
        return signed and self._clock() < int(session[1])

    def is_token(self, given: str) -> bool:
        """Return whether `given` is the token. Takes equally long for all wrong tokens."""
        if self._token is None:
            return False
        # Digests have the same length, so the comparison doesn't reveal the length of the token.
        digests = (hashlib.sha256(raw).digest() for raw in (given.encode("utf-8", "replace"),
                                                             self._token))  # fmt: skip
        return hmac.compare_digest(*digests)

    def session_cookie(self, port: int) -> str:
        """Return the Set-Cookie header that starts a session of 12 hours."""
        until = self._clock() + SESSION_MS
        value = f"{until}.{self._signature(until)}"
        return f"{self._cookie_name(port)}={value}; Max-Age={SESSION_MS // 1000}{self._rest}"

    def end_cookie(self, port: int) -> str:
        """Return the Set-Cookie header that removes the session cookie from the browser."""
        return f"{self._cookie_name(port)}=; Max-Age=0{self._rest}"

    @property
    def _rest(self) -> str:
        return "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self._secure else "")

    def _cookie_name(self, port: int) -> str:
        # Browsers don't separate cookies by port, so two servers on this host need two names. A
        # cookie named __Host-... can't be set by another host of the same domain.
        return f"{'__Host-' if self._secure else ''}sparklog-{port}"

    def _signature(self, until_ms: int) -> str:
        # The key is derived from the token: sessions survive a restart of the server, and end when
        # the token is replaced.
        key = hashlib.sha256(b"sparklog ui session " + (self._token or b"")).digest()
        return hmac.new(key, str(until_ms).encode(), hashlib.sha256).hexdigest()


def parse_ui_address(text: str, option: str = "--ui") -> Address:
    """Parse a listening address, [HOST:]PORT. The default host is 127.0.0.1.

    Args:
        text: The address as the user typed it.
        option: The command-line option that contained it, named in errors.

    Raises:
        InvalidRequestError: `text` is not an address.
    """
    return parse_address(text, name=option, example=8080, encrypted_by="--ui-certificate")


def tls_files(certificate: str | None, key: str | None) -> TlsFiles | None:
    """Return the TLS files of --ui-certificate and --ui-key, or None without --ui-certificate.

    Raises:
        InvalidRequestError: There is a key without a certificate.
    """
    if certificate is None:
        if key is not None:
            raise InvalidRequestError(
                "--ui-key needs a certificate: set --ui-certificate=FILE as well"
            )
        return None
    return TlsFiles(certificate=certificate, key=key or "", names=_TLS_NAMES)


def check_listener(
    address: Address,
    addresses: Sequence[str],
    *,
    token: bool,
    tls: bool,
    insecure: bool,
    names: Sequence[str] = (),
    option: str = "--ui",
) -> None:
    """Check that other hosts can reach the pages only with a token and over TLS.

    Args:
        address: The address as the user typed it, for messages.
        addresses: The IP addresses of the listener.
        token: Whether a token is required.
        tls: Whether the connections are encrypted.
        insecure: Whether the user accepts unencrypted connections (--ui-insecure).
        names: The names of --ui-name.
        option: The option that contained `address`, for messages.

    Raises:
        InvalidRequestError: Other hosts could read the log. The message names the missing options.
    """
    if names and not token:
        raise InvalidRequestError(
            "--ui-name is the name of a proxy, which other hosts can reach: set "
            "--ui-token-file=FILE as well"
        )
    if is_loopback(addresses):
        return
    if not token:
        raise InvalidRequestError(
            f"{option}={address} can be reached from other hosts, where anybody could read the "
            f"log: set --ui-token-file=FILE (or {TOKEN_VARIABLE} in the environment), or listen "
            "on 127.0.0.1"
        )
    if not tls and not insecure:
        raise InvalidRequestError(
            f"{option}={address} can be reached from other hosts, and the token would be sent "
            "unencrypted: set --ui-certificate=FILE (PEM), or listen on 127.0.0.1 behind a proxy "
            "that encrypts. If only trusted clients can reach that address (for example in a "
            "container's own network), use --ui-insecure"
        )


def read_token(path: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token from a file's first line, or without a file from the environment.

    Returns:
        The token, or None if there is neither a file nor the variable SPARKLOG_UI_TOKEN.

    Raises:
        InvalidRequestError: The file does not exist, other users may read it, or the token is too
            short or not text.
        StorageUnavailableError: The file can't be read.
    """
    if path is None:
        token, where = environment.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not token:
            return None
    else:
        token, where = _first_line(path), f"--ui-token-file={path}"
    if not TOKEN_LENGTH_MIN <= len(token) <= _TOKEN_LENGTH_MAX or not token.isprintable():
        raise InvalidRequestError(
            f"{where}: the token must be one line of at least {TOKEN_LENGTH_MIN} characters, "
            "such as the output of `openssl rand -hex 32`", path=path,
        )  # fmt: skip
    return token


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.readline(_TOKEN_LENGTH_MAX + 2)
    except FileNotFoundError:
        raise InvalidRequestError(f"--ui-token-file={path}: no such file", path=path) from None
    except OSError as error:
        raise StorageUnavailableError(
            f"--ui-token-file={path} can't be read: {error.strerror}", path=path
        ) from error
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        raise InvalidRequestError(
            f"--ui-token-file={path}: every user of this host can read the file; "
            f"run: chmod 600 {path}",
            path=path,
        )
    try:
        return raw.decode().strip()
    except UnicodeDecodeError:
        raise InvalidRequestError(
            f"--ui-token-file={path}: the first line is not UTF-8 text", path=path
        ) from None
