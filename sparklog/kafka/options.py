"""Options of the endpoint, by the names of Kafka's broker configs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from sparklog.configdef import INT_MAX, Key, keys_of, option, read, refuse_unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """Options of the endpoint. Fields are the keys in snake case; the last word is the unit."""

    node_id: int = option(
        "node.id", 1,
        doc="Id of the broker that clients see. Endpoints of the same log need different ids.",
    )  # fmt: skip
    num_partitions: int = option(
        "num.partitions", 1, low=1,
        doc="Partitions of a topic that a client creates without a number of partitions.",
    )  # fmt: skip
    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable", False,
        doc="Whether a missing topic is created when a client requests its metadata and allows "
        "its creation. Kafka: true.",
    )  # fmt: skip
    num_io_threads: int = option(
        "num.io.threads", 4, low=1,
        doc="Threads that read and write the log. Connections need no threads.",
    )  # fmt: skip
    socket_request_max_bytes: int = option(
        "socket.request.max.bytes", 100 << 20, low=1,
        doc="Largest request in bytes. A larger request closes its connection.",
    )  # fmt: skip

    queued_max_request_bytes: int = option(
        "queued.max.request.bytes", 256 << 20, low=1 << 20, long=True,
        doc="Memory (bytes) for all requests above 64 KiB together. Further requests wait. "
        "Kafka: unlimited.",
    )  # fmt: skip
    queued_max_response_bytes: int = option(
        "queued.max.response.bytes", 512 << 20, low=1 << 20, long=True,
        doc="Own option: bytes of responses that clients have not received yet. Above this limit, "
        "clients that received nothing for 10 s are disconnected.",
    )  # fmt: skip
    max_connections: int = option(
        "max.connections", 1000, low=1,
        doc="Maximum number of connections; further ones are closed. Limited to half of the files "
        "that the process may open. With TLS each uses 0.3 MiB. Kafka: unlimited.",
    )  # fmt: skip
    max_connections_per_ip: int = option(
        "max.connections.per.ip", INT_MAX, low=1,
        doc="Maximum number of connections from one address.",
    )  # fmt: skip
    max_connection_creation_rate: int = option(
        "max.connection.creation.rate", INT_MAX, low=1,
        doc="Maximum number of new connections per second; further ones are closed.",
    )  # fmt: skip
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms", 600_000, low=1, long=True,
        doc="Time (ms) after which an idle connection is closed.",
    )  # fmt: skip
    connections_setup_timeout_ms: int = option(
        "connections.setup.timeout.ms", 30_000, low=1,
        doc="Own option: time limit (ms) of the TLS handshake and of the authentication, and of "
        "receiving a request, unless 8 KiB per second arrive.",
    )  # fmt: skip
    listener_insecure: bool = option(
        "listener.insecure", False,
        doc="Own option: allow listening beyond loopback without TLS or SASL, if only trusted "
        "clients can reach the address.",
    )  # fmt: skip
    advertised_listeners: str = option(
        "advertised.listeners", "",
        doc="HOST:PORT that clients are told to connect to. The default is the listener's address, "
        "and for 0.0.0.0 or :: the address that the client connected to.",
    )  # fmt: skip
    sasl_users_location: str = option(
        "sasl.users.location", "",
        doc="Own option: the users' file, created by `sparklog kafka-users`. With it clients must "
        "authenticate and have the rights listed there.",
    )  # fmt: skip
    sasl_enabled_mechanisms: tuple[str, ...] = option(
        "sasl.enabled.mechanisms", ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
        doc="SASL mechanisms for the users of sasl.users.location. If empty, the file only holds "
        "the rights of clients with certificates. Kafka: GSSAPI.",
    )  # fmt: skip
    sasl_server_max_receive_bytes: int = option(
        "sasl.server.max.receive.size", 512 << 10, low=1,
        doc="Largest request (bytes) of a client that has not authenticated.",
    )  # fmt: skip
    connections_max_reauth_ms: int = option(
        "connections.max.reauth.ms", 0, long=True,
        doc="Time (ms) after which a client has to authenticate again (KIP-368); 0: never.",
    )  # fmt: skip
    connection_failed_authentication_delay_ms: int = option(
        "connection.failed.authentication.delay.ms", 100,
        doc="Delay (ms) of the response to a failed authentication.",
    )  # fmt: skip
    ssl_keystore_location: str = option(
        "ssl.keystore.location", "", also=("ssl.certificate.location",),
        doc="The endpoint's certificate with its chain (PEM). With it clients must use TLS. "
        "Reloaded when the file changes.",
    )  # fmt: skip
    ssl_key_location: str = option(
        "ssl.key.location", "",
        doc="The certificate's key (PEM), if it is not in ssl.keystore.location.",
    )  # fmt: skip
    ssl_key_password: str = option(
        "ssl.key.password", "", secret=True,
        doc="Password of the key, if the key is encrypted.",
    )  # fmt: skip
    ssl_truststore_location: str = option(
        "ssl.truststore.location", "", also=("ssl.ca.location",),
        doc="Authorities (PEM) that issue client certificates. Reloaded when the file changes.",
    )  # fmt: skip
    ssl_client_auth: str = option(
        "ssl.client.auth", "none", choices=("none", "requested", "required"), any_case=True,
        doc="Whether clients must send a certificate. Its subject (CN=alice,O=x) is the user name, "
        "unless the client authenticates with SASL.",
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms", 3000,
        doc="How long (ms) a new consumer group waits for further members before its first "
        "rebalance.",
    )  # fmt: skip
    group_min_session_timeout_ms: int = option(
        "group.min.session.timeout.ms", 6000,
        doc="Shortest session timeout (ms) that consumers may request.",
    )  # fmt: skip
    group_max_session_timeout_ms: int = option(
        "group.max.session.timeout.ms", 1_800_000,
        doc="Longest session timeout (ms) that consumers may request.",
    )  # fmt: skip
    group_max_size: int = option(
        "group.max.size", INT_MAX, low=1,
        doc="Maximum number of members of a consumer group.",
    )  # fmt: skip
    group_members_max_bytes: int = option(
        "group.members.max.bytes", 64 << 20, low=1 << 20, long=True,
        doc="Own option: memory in bytes for the subscriptions and assignments of all groups' "
        "members. Beyond it no member can join (GROUP_MAX_SIZE_REACHED).",
    )  # fmt: skip
    group_consumer_session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms", 45_000, low=1,
        doc="Session timeout (ms) of members of the consumer protocol (KIP-848).",
    )  # fmt: skip
    group_consumer_heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms", 5_000, low=1,
        doc="Heartbeat interval (ms) of members of the consumer protocol.",
    )  # fmt: skip
    group_consumer_max_size: int = option(
        "group.consumer.max.size", INT_MAX, low=1,
        doc="Maximum number of members of a group of the consumer protocol.",
    )  # fmt: skip
    offset_metadata_max_bytes: int = option(
        "offset.metadata.max.bytes", 4096,
        doc="Longest metadata text, in characters, that a client may commit with an offset.",
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms", 600_000, low=1, long=True,
        doc="How often (ms) groups without members are removed from memory, and commits of active "
        "groups are renewed. The service's rounds delete expired commits.",
    )  # fmt: skip
    fetch_max_bytes: int = option(
        "fetch.max.bytes", 55 << 20, low=1024,
        doc="Maximum bytes of records per Fetch response, whatever the client allows. A larger "
        "first batch is still returned.",
    )  # fmt: skip
    fetch_buffer_bytes: int = option(
        "fetch.buffer.bytes", 64 << 20, low=1 << 20,
        doc="Maximum bytes of records in all unsent Fetch responses together. Each response uses "
        "at most half of the free memory. Kafka's brokers send from the page cache.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for key in ENDPOINT_KEYS.values():
            key.check(getattr(self, key.field))

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Parse options.

        Raises:
            InvalidRequestError: An option is unknown or has an invalid value.
        """
        found, rest = read(ENDPOINT_KEYS.values(), values)
        refuse_unknown(rest, ENDPOINT_KEYS)
        return cls(**found)


ENDPOINT_KEYS: Final[dict[str, Key]] = keys_of(EndpointOptions)
"""The endpoint's keys with their descriptions."""
