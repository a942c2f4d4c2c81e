"""`Access`: who may see the pages. On loopback that is this host; other addresses need a token.

The token comes with each request (`Authorization: Bearer`), or once to the form at /login, which
sets a cookie. The cookie is not the token, because browsers send a host's cookies to each of its
ports; it holds the end of the session and an HMAC of that. A new token ends all sessions. A foreign
name can be made to resolve to this host (DNS rebinding), and is then in the Host header. So on
loopback only known names are answered.
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
"""The environment variable with the token, used if no file is given."""
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
    """Decides who may see the pages. Threads may share it.

    `secure`: the connection is encrypted.
    """

    def __init__(
        self,
        addresses: Sequence[str] = ("127.0.0.1",),
        *,
        token: str | None = None,
        names: Sequence[str] = (),
        secure: bool = False,
        clock: Clock = system_clock,
    ) -> None:
        """Args:

        addresses: the listening addresses. names: further names of this host, such as a proxy's.
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
        """Whether a Host header names this host.

        On other addresses than loopback any name is accepted.
        """
        found = _HOST.fullmatch(host)
        name = "" if found is None else found["six"] or found["name"]
        return not self._local or name.lower() in self._names

    def admits(self, headers: Mapping[str, str], port: int) -> bool:
        """Whether a request has the token, or a session cookie.

        `headers`: by their names in small letters.
        """
        if self._token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            raw = given.strip().encode("latin-1", "replace")  # as headers are decoded
            return self.is_token(raw.decode("utf-8", "replace"))
        # Not SimpleCookie: it rejects all cookies if another port's one is odd, and may be slow.
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        cookies = {name: value for name, _, value in pairs}
        session = _SESSION.fullmatch(cookies.get(self._cookie_name(port), ""))
        if session is None:
            return False
        signed = hmac.compare_digest(self._signature(int(session[1])), session[2])
        return signed and self._clock() < int(session[1])

    def is_token(self, given: str) -> bool:
        """Whether this is the token, compared in constant time."""
        if self._token is None:
            return False
        digests = (hashlib.sha256(raw).digest() for raw in (given.encode("utf-8", "replace"),
                                                             self._token))  # fmt: skip
        return hmac.compare_digest(*digests)

    def session_cookie(self, port: int) -> str:
        """Return the Set-Cookie header that begins a session."""
        until = self._clock() + SESSION_MS
        value = f"{until}.{self._signature(until)}"
        return f"{self._cookie_name(port)}={value}; Max-Age={SESSION_MS // 1000}{self._rest}"

    def end_cookie(self, port: int) -> str:
        """Return the Set-Cookie header that removes the cookie."""
        return f"{self._cookie_name(port)}=; Max-Age=0{self._rest}"

    @property
    def _rest(self) -> str:
        return "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self._secure else "")

    def _cookie_name(self, port: int) -> str:
        return f"{'__Host-' if self._secure else ''}sparklog-{port}"

    def _signature(self, until_ms: int) -> str:
        key = hashlib.sha256(b"sparklog ui session " + (self._token or b"")).digest()
        return hmac.new(key, str(until_ms).encode(), hashlib.sha256).hexdigest()


def parse_ui_address(text: str, option: str = "--ui") -> Address:
    """Return the address that `option` gives: [HOST:]PORT, the host 127.0.0.1 by default.

    Raises: InvalidRequestError.
    """
    return parse_address(text, name=option, example=8080, encrypted_by="--ui-certificate")


def tls_files(certificate: str | None, key: str | None) -> TlsFiles | None:
    """Return the files of --ui-certificate and --ui-key. Raises: InvalidRequestError."""
    if certificate is None:
        if key is not None:
            raise InvalidRequestError("--ui-key: give --ui-certificate=FILE as well")
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
    """Refuse to show the log to other hosts unprotected. `addresses`: those of the listener.

    Raises: InvalidRequestError, which names the options that are missing.
    """
    if names and not token:
        raise InvalidRequestError(
            "--ui-name is for a proxy that other hosts reach: give --ui-token-file=FILE as well"
        )
    if is_loopback(addresses):
        return
    if not token:
        raise InvalidRequestError(
            f"{option}={address} can be reached from other hosts, where anybody could read the "
            f"log: give --ui-token-file=FILE (or {TOKEN_VARIABLE} in the environment), or listen "
            "on 127.0.0.1"
        )
    if not tls and not insecure:
        raise InvalidRequestError(
            f"{option}={address} can be reached from other hosts, and the token would be sent "
            "unencrypted: give --ui-certificate=FILE (PEM), or listen on 127.0.0.1 behind a proxy "
            "that encrypts. If only trusted clients reach that address (in a container's own "
            "network, for example): --ui-insecure"
        )


def read_token(path: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token in a file's first line, or of the environment, or None if neither is given.

    Raises: InvalidRequestError: it is too short, or not text; StorageUnavailableError.
    """
    if path is None:
        token, where = environment.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not token:
            return None
    else:
        token, where = _first_line(path), f"--ui-token-file={path}"
    if not TOKEN_LENGTH_MIN <= len(token) <= _TOKEN_LENGTH_MAX or not token.isprintable():
        raise InvalidRequestError(
            f"{where}: want a token of {TOKEN_LENGTH_MIN} characters or more in one line, such as "
            "`openssl rand -hex 32` makes", path=path,
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
            f"--ui-token-file={path}: everybody on this host may read it; run: chmod 600 {path}",
            path=path,
        )
    try:
        return raw.decode().strip()
    except UnicodeDecodeError:
        raise InvalidRequestError(f"--ui-token-file={path}: this is not text", path=path) from None
