"""`Security`: who may connect to an endpoint and with which rights, according to its options.

TLS is used if there is a certificate, SASL if there is a users' file. A listener that other hosts
can reach needs both, or client certificates (`listeners`). Without a users' file every client has
all rights. With a users' file, each user has the rights listed there, and changes apply at once.
"""

import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.kafka.credentials import SCRAM, Mechanism
from sparklog.kafka.listeners import (
    check_advertised,
    check_listener,
    parse_advertised,
)
from sparklog.kafka.options import EndpointOptions
from sparklog.kafka.sasl import SaslServer
from sparklog.kafka.users import ALL, Right, Users
from sparklog.network.addresses import Address
from sparklog.network.tls import ClientAuth, Tls, TlsFiles

ANONYMOUS: Final = "ANONYMOUS"
"""The user name of unauthenticated clients. Source: KafkaPrincipal.ANONYMOUS."""


class Security:
    """Security settings of an endpoint. `pool` checks passwords in sequence."""

    def __init__(
        self, options: EndpointOptions, address: Address, addresses: Sequence[str]
    ) -> None:
        """Read the files, and check that unauthenticated clients cannot connect from other hosts.

        `address`: the listener; `addresses`: the addresses it resolves to. Raises:
        InvalidRequestError with the option or file and the remedy; StorageUnavailableError.
        """
        self._options = options
        self.advertised = parse_advertised(options.advertised_listeners)
        self.mechanisms = _mechanisms(options)
        files = _tls_files(options)
        check_listener(
            address,
            addresses,
            tls=files is not None,
            client_certificates=options.ssl_client_auth == ClientAuth.REQUIRED,
            mechanisms=self.mechanisms,
            insecure=options.listener_insecure,
        )
        check_advertised(address, self.advertised, tls=files is not None)
        self.users = Users(options.sasl_users_location or None)
        self.tls = None if files is None else Tls(files)
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="sparklog-kafka-sasl")

    @property
    def protocol(self) -> str:
        """Kafka's security.protocol that clients have to use."""
        return ("SASL_" if self.mechanisms else "") + ("PLAINTEXT" if self.tls is None else "SSL")

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context of new connections, or None without TLS."""
        return None if self.tls is None else self.tls.context

    def sasl(self) -> SaslServer | None:
        """Return the SASL exchange of a new connection, if SASL is enabled."""
        if not self.mechanisms:
            return None
        return SaslServer(
            self.users,
            self.mechanisms,
            max_reauth_ms=self._options.connections_max_reauth_ms,
            pool=self.pool,
        )

    def rights(self, name: str) -> frozenset[Right]:
        """Return the current rights of a user. Cost: a lookup in memory."""
        return ALL if self.users.path is None else self.users.rights(name)

    def refresh(self) -> None:
        """Reload changed files. Must not run on an event loop's thread."""
        self.users.refresh()
        if self.tls is not None:
            self.tls.refresh()

    def close(self) -> None:
        """Shut the pool down."""
        self.pool.shutdown()


def _mechanisms(options: EndpointOptions) -> tuple[Mechanism, ...]:
    """Return the enabled mechanisms; empty without a users' file."""
    wanted = options.sasl_enabled_mechanisms
    if options.sasl_users_location:
        return tuple(map(Mechanism, wanted))
    if wanted != tuple(SCRAM):
        raise InvalidRequestError(
            f"sasl.enabled.mechanisms={','.join(wanted)} requires users; set "
            "sasl.users.location=FILE; `sparklog kafka-users FILE --add NAME` creates it"
        )
    return ()


def _tls_files(options: EndpointOptions) -> TlsFiles | None:
    given = {
        "ssl.key.location": options.ssl_key_location,
        "ssl.key.password": options.ssl_key_password,
        "ssl.truststore.location": options.ssl_truststore_location,
    }
    if not options.ssl_keystore_location:
        lost = [name for name, value in given.items() if value]
        if options.ssl_client_auth != ClientAuth.NONE:
            lost.append("ssl.client.auth")
        if lost:
            raise InvalidRequestError(
                f"{', '.join(lost)}: TLS requires a certificate; set ssl.keystore.location=FILE, "
                "the endpoint's own certificate (PEM)"
            )
        return None
    return TlsFiles(
        certificate=options.ssl_keystore_location,
        key=options.ssl_key_location,
        key_password=options.ssl_key_password,
        truststore=options.ssl_truststore_location,
        client_auth=ClientAuth(options.ssl_client_auth),
    )
