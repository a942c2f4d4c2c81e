"""Addresses to listen on, and which hosts can connect to an address."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, name: str, example: int, encrypted_by: str) -> Address:
    """Parse PORT or HOST:PORT. The default host is 127.0.0.1; ports are 0..65535.

    Args:
        name: The name of the option.
        example: A typical port for the option.
        encrypted_by: The options that replace a scheme.

    Raises:
        InvalidRequestError: The address is malformed; the message has `name` and the expected form.
    """
    wanted = f"use PORT or HOST:PORT, such as {example}, localhost:{example} or [::1]:{example}"
    text = text.strip()
    if "://" in text:
        scheme, _, _ = text.partition("://")
        raise InvalidRequestError(
            f"{name}={text}: leave out {scheme}://; whether the connection is encrypted depends "
            f"on {encrypted_by}"
        )
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if bracketed != (":" in host):
        raise InvalidRequestError(f"{name}={text}: an IPv6 address needs brackets; {wanted}")
    if not (port.isascii() and port.isdecimal()) or int(port) > 65535 or (colon and not host):
        raise InvalidRequestError(f"{name}={text}: {wanted}")
    return Address(host or "127.0.0.1", int(port))


def resolve(host: str) -> list[str]:
    """Return the addresses of a host without duplicates, in the system's order.

    Raises:
        InvalidRequestError: The host's name can't be resolved.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidRequestError(f"the host name {host} can't be resolved: {error}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_loopback(addresses: Iterable[str]) -> bool:
    """Return whether only this host can connect to all of these addresses."""

    def check(text: str) -> bool:
        address = ipaddress.ip_address(text.partition("%")[0])
        # Not every version of Python counts ::ffff:127.0.0.1 as loopback.
        mapped = getattr(address, "ipv4_mapped", None)
        return bool((mapped or address).is_loopback)

    return all(map(check, addresses))


def is_wildcard(address: Address) -> bool:
    """Return whether the address means all addresses of the host."""
    try:
        return ipaddress.ip_address(address.host).is_unspecified
    except ValueError:
        return False
