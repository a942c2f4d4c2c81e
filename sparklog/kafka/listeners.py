"""Where an endpoint listens: addresses as people write them, who may reach them, and the sockets.

On loopback anybody on this host may come. Elsewhere a client has to be encrypted and known: TLS,
and SASL or a client certificate; `listener.insecure=true` says that the network itself is trusted.
A password in the clear (SASL PLAIN without TLS) leaves this host never.
"""

import errno
import socket
from collections.abc import Sequence
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.kafka.credentials import Mechanism
from sparklog.network.addresses import Address, is_loopback, is_wildcard
from sparklog.network.addresses import parse_address as parse

PORT: Final = 9092
BACKLOG: Final = 512
_SAME_PORT_TRIES: Final = 20


def parse_address(text: str, *, name: str = "--kafka") -> Address:
    """Read PORT or HOST:PORT; the host is 127.0.0.1 by default, the port 0..65535.

    Raises: InvalidRequestError with `name` and what is meant.
    """
    files = "ssl.keystore.location and sasl.users.location"
    return parse(text, name=name, example=PORT, encrypted_by=files)


def parse_advertised(text: str) -> Address | None:
    """Read advertised.listeners: HOST:PORT, of which Kafka's form is SCHEME://HOST:PORT; "": None.

    Raises: InvalidRequestError.
    """
    name = "advertised.listeners"
    if not text:
        return None
    found = parse_address(text.rpartition("://")[2], name=name)
    if ":" not in text.rpartition("://")[2] or not found.port or is_wildcard(found):
        raise InvalidRequestError(
            f"{name}={text}: want the one HOST:PORT that clients are to connect to"
        )
    return found


def check_listener(
    address: Address,
    addresses: Sequence[str],
    *,
    tls: bool,
    client_certificates: bool,
    mechanisms: Sequence[Mechanism],
    insecure: bool,
) -> None:
    """Refuse to listen where strangers could come in; see the module.

    `client_certificates`: they are required. `mechanisms`: of SASL, none if there is no SASL.
    Raises: InvalidRequestError, which names the options that are missing.
    """
    if is_loopback(addresses):
        return
    if Mechanism.PLAIN in mechanisms and not tls:
        raise InvalidRequestError(
            f"{address}: SASL PLAIN would send passwords in the clear: give ssl.keystore.location "
            "as well, or take PLAIN out of sasl.enabled.mechanisms; SCRAM sends no password"
        )
    missing = [] if tls else ["ssl.keystore.location=FILE (a certificate and its key, PEM)"]
    if not mechanisms and not (tls and client_certificates):
        missing.append(
            "sasl.users.location=FILE (`sparklog kafka-users FILE --add NAME` makes it), or "
            "ssl.client.auth=required with ssl.truststore.location=FILE"
        )
    if missing and not insecure:
        raise InvalidRequestError(
            f"{address} can be reached from other hosts, where anybody could "
            + ("read and change the log" if len(missing) == 2 else _UNSAFE[bool(tls)])
            + f"; give {' and '.join(missing)}, or listen on 127.0.0.1. If only those whom you "
            "trust reach that address (a container's own network, say): listener.insecure=true"
        )


_UNSAFE: Final = {True: "read and change the log", False: "listen in, and change what is sent"}


def check_advertised(address: Address, advertised: Address | None, *, tls: bool) -> None:
    """Refuse to leave clients without a name that they can check. Raises: InvalidRequestError."""
    if tls and advertised is None and is_wildcard(address):
        raise InvalidRequestError(
            f"{address}: clients check the name in the certificate, so they must be told one: "
            "give advertised.listeners=NAME:PORT"
        )


def listen(address: Address, addresses: Sequence[str]) -> list[socket.socket]:
    """Listen on all `addresses` of a host that there are, all on the same port.

    "::" takes IPv4 as well, as a broker's does. Raises: InvalidRequestError: it is taken, not
    allowed, or not this host's; nothing is listened on then.
    """
    for left in reversed(range(_SAME_PORT_TRIES)):
        found: list[socket.socket] = []
        try:
            _listen_on_each(address, addresses, found)
        except OSError as error:
            for each in found:
                each.close()
            lost = address.port == 0 and bool(found) and error.errno == errno.EADDRINUSE
            if not (lost and left):  # a free port of the first address may be taken on the next
                raise _refusal(address, error) from None
        else:
            return found
    raise AssertionError("the last try ends it")


def _listen_on_each(address: Address, addresses: Sequence[str], out: list[socket.socket]) -> None:
    port, absent = address.port, None
    for each in addresses:
        try:
            out.append(_listen_on(each, port))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            absent = error  # ::1 of localhost, say, where there is no IPv6
            continue
        port = int(out[-1].getsockname()[1])
    if not out:
        raise absent or OSError(errno.EADDRNOTAVAIL, "it has no address")


def _listen_on(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not is_wildcard(Address(host, port)))
            )
        found.setblocking(False)
        found.bind(where)
        found.listen(BACKLOG)
    except BaseException:
        found.close()
        raise
    return found


def _refusal(address: Address, error: OSError) -> InvalidRequestError:
    hints = {
        errno.EADDRINUSE: "another process listens there: choose another port, or 0 for a free one",
        errno.EACCES: "ports below 1024 are root's: choose another one",
        errno.EADDRNOTAVAIL: "it is none of this host's addresses; clients that come by another "
        "one are told it by advertised.listeners",
    }
    hint = hints.get(error.errno or 0, "choose another address")
    return InvalidRequestError(f"can't listen on {address}: {error.strerror or error}; {hint}")
