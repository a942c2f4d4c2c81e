"""Listener addresses of an endpoint: parsing, security requirements, and sockets.

On loopback any process of the host may connect. On other addresses clients need TLS, and SASL or a
client certificate, unless `listener.insecure=true` declares the network trusted. Passwords never
leave the host unencrypted (SASL PLAIN without TLS).
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
    """Read PORT or HOST:PORT; the default host is 127.0.0.1, the port 0..65535.

    Raises:
        InvalidRequestError: `text` is invalid. The message contains `name` and the expected form.
    """
    files = "ssl.keystore.location and sasl.users.location"
    return parse(text, name=name, example=PORT, encrypted_by=files)


def parse_advertised(text: str) -> Address | None:
    """Read advertised.listeners: HOST:PORT or Kafka's SCHEME://HOST:PORT; "" returns None.

    Raises:
        InvalidRequestError: `text` is not a single address of a host.
    """
    name = "advertised.listeners"
    if not text:
        return None
    found = parse_address(text.rpartition("://")[2], name=name)
    if ":" not in text.rpartition("://")[2] or not found.port or is_wildcard(found):
        raise InvalidRequestError(
            f"{name}={text}: the value must be the single HOST:PORT that clients connect to"
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
    """Check that unauthenticated clients of other hosts cannot connect.

    Args:
        address: The address as the user typed it.
        addresses: The IP addresses of the host.
        tls: Whether the listener uses TLS.
        client_certificates: Whether clients must have a certificate.
        mechanisms: The enabled SASL mechanisms, empty without SASL.
        insecure: Whether the user declared the network trusted (listener.insecure).

    Raises:
        InvalidRequestError: Such clients could connect. The message names the missing options.
    """
    if is_loopback(addresses):
        return
    if Mechanism.PLAIN in mechanisms and not tls:
        raise InvalidRequestError(
            f"{address}: SASL PLAIN would send passwords unencrypted: set ssl.keystore.location as "
            "well, or remove PLAIN from sasl.enabled.mechanisms; SCRAM sends no password"
        )
    missing = [] if tls else ["ssl.keystore.location=FILE (a certificate and its key, PEM)"]
    if not mechanisms and not (tls and client_certificates):
        missing.append(
            "sasl.users.location=FILE (`sparklog kafka-users FILE --add NAME` creates it), or "
            "ssl.client.auth=required with ssl.truststore.location=FILE"
        )
    if missing and not insecure:
        raise InvalidRequestError(
            f"{address} can be reached from other hosts, where any client could "
            + ("read and change the log" if len(missing) == 2 else _UNSAFE[bool(tls)])
            + f"; set {' and '.join(missing)}, or listen on 127.0.0.1. If only trusted clients can "
            "reach that address (a container's own network, for example): listener.insecure=true"
        )


_UNSAFE: Final = {True: "read and change the log", False: "eavesdrop on the traffic, and change it"}


def check_advertised(address: Address, advertised: Address | None, *, tls: bool) -> None:
    """Raise InvalidRequestError if TLS clients would get no host name that they can verify."""
    if tls and advertised is None and is_wildcard(address):
        raise InvalidRequestError(
            f"{address}: clients verify the host name in the certificate, so the endpoint must "
            "advertise this name: set advertised.listeners=NAME:PORT"
        )


def listen(address: Address, addresses: Sequence[str]) -> list[socket.socket]:
    """Listen on each of `addresses` that this host has, with the same port on all.

    Args:
        address: The address as the user gave it, for errors; port 0 selects a free port.
        addresses: The IP addresses that the address resolves to. Addresses that this host lacks are
            skipped, for example "::1" on a host without IPv6. "::" also accepts IPv4, as a broker's
            listener does.

    Raises:
        InvalidRequestError: An address is in use or not permitted, or this host has none of them.
            No socket is left open.
    """
    for left in reversed(range(_SAME_PORT_TRIES)):
        found: list[socket.socket] = []
        try:
            _listen_on_each(address, addresses, found)
        except OSError as error:
            for each in found:
                each.close()
            lost = address.port == 0 and bool(found) and error.errno == errno.EADDRINUSE
            if not (lost and left):  # a free port of the first address may be in use on the next
                raise _refusal(address, error) from None
        else:
            return found
    raise AssertionError("the last attempt returns or raises")


def _listen_on_each(address: Address, addresses: Sequence[str], out: list[socket.socket]) -> None:
    port, absent = address.port, None
    for each in addresses:
        try:
            out.append(_listen_on(each, port))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            absent = error  # for example ::1 of localhost without IPv6
            continue
        port = int(out[-1].getsockname()[1])
    if not out:
        raise absent or OSError(errno.EADDRNOTAVAIL, "the host has no address")


def _listen_on(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    found = socket.socket(family, kind, protocol)
    try:
        # A restarted endpoint must be able to listen while old connections are in TIME_WAIT.
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
        errno.EACCES: "ports below 1024 require root: choose another one",
        errno.EADDRNOTAVAIL: "this host does not have the address; clients that connect to "
        "another address need advertised.listeners",
    }
    hint = hints.get(error.errno or 0, "choose another address")
    return InvalidRequestError(f"can't listen on {address}: {error.strerror or error}; {hint}")
