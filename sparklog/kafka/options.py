"""Options of the endpoint, by the names of Kafka's broker configs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from sparklog.configdef import INT_MAX, Key, keys_of, option, read, refuse_unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """How the endpoint serves. Fields are the keys in snake case; the unit is the last word."""

    node_id: int = option(
        "node.id", 1,
        doc="Id of the one broker that clients see.",
    )  # fmt: skip
    num_partitions: int = option(
        "num.partitions", 1, low=1,
        doc="Partitions of a topic that a client makes without saying how many.",
    )  # fmt: skip
    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable", False,
        doc="Whether a topic that a client asks about is made if it isn't there, where the client "
        "lets it. Kafka: true.",
    )  # fmt: skip
    num_io_threads: int = option(
        "num.io.threads", 4, low=1,
        doc="Threads that read and write the log; connections take none.",
    )  # fmt: skip
    socket_request_max_bytes: int = option(
        "socket.request.max.bytes", 100 << 20, low=1,
        doc="Largest request in bytes; a connection that announces a larger one is closed.",
    )  # fmt: skip

    queued_max_request_bytes: int = option(
        "queued.max.request.bytes", 256 << 20, low=1 << 20, long=True,
        doc="Memory (bytes) of all requests above 64 KiB together; those that find no room wait. "
        "Kafka: unlimited.",
    )  # fmt: skip
    queued_max_response_bytes: int = option(
        "queued.max.response.bytes", 512 << 20, low=1 << 20, long=True,
        doc="Own option: bytes of answers that clients haven't taken yet. Above it, clients that "
        "took nothing for 10 s are disconnected.",
    )  # fmt: skip
    max_connections: int = option(
        "max.connections", 1000, low=1,
        doc="Connections at a time, further ones are closed; at most half of the files that the "
        "process may open. With TLS each takes 0.3 MiB. Kafka: unlimited.",
    )  # fmt: skip
    max_connections_per_ip: int = option(
        "max.connections.per.ip", INT_MAX, low=1,
        doc="Connections at a time from one address.",
    )  # fmt: skip
    max_connection_creation_rate: int = option(
        "max.connection.creation.rate", INT_MAX, low=1,
        doc="New connections a second; further ones are closed.",
    )  # fmt: skip
    connections_max_idle_ms: int = option(
        "connections.max.idle.ms", 600_000, low=1, long=True,
        doc="Time (ms) after which a connection on which nothing moves is closed.",
    )  # fmt: skip
    connections_setup_timeout_ms: int = option(
        "connections.setup.timeout.ms", 30_000, low=1,
        doc="Own option: time (ms) for the TLS handshake and for authenticating; and for a "
        "request to be all there, unless 8 KiB a second come.",
    )  # fmt: skip
    listener_insecure: bool = option(
        "listener.insecure", False,
        doc="Own option: it may listen elsewhere than on loopback without TLS or SASL, for only "
        "those whom you trust reach that address.",
    )  # fmt: skip
    advertised_listeners: str = option(
        "advertised.listeners", "",
        doc="HOST:PORT that clients are told to connect to; where it listens by default, and for "
        "0.0.0.0 or :: the address that a client came by.",
    )  # fmt: skip
    sasl_users_location: str = option(
        "sasl.users.location", "",
        doc="Own option: the users' file, made by `sparklog kafka-users`; with it clients have to "
        "authenticate, and have the rights that it says.",
    )  # fmt: skip
    sasl_enabled_mechanisms: tuple[str, ...] = option(
        "sasl.enabled.mechanisms", ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        choices=("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"),
        doc="SASL mechanisms for the users of sasl.users.location. None: the file has only the "
        "rights of those who come by certificate. Kafka: GSSAPI.",
    )  # fmt: skip
    sasl_server_max_receive_bytes: int = option(
        "sasl.server.max.receive.size", 512 << 10, low=1,
        doc="Largest request (bytes) of a client that hasn't authenticated.",
    )  # fmt: skip
    connections_max_reauth_ms: int = option(
        "connections.max.reauth.ms", 0, long=True,
        doc="Time (ms) after which a client has to authenticate again (KIP-368); 0: never.",
    )  # fmt: skip
    connection_failed_authentication_delay_ms: int = option(
        "connection.failed.authentication.delay.ms", 100,
        doc="Time (ms) that a client waits for the answer that its password is wrong.",
    )  # fmt: skip
    ssl_keystore_location: str = option(
        "ssl.keystore.location", "", also=("ssl.certificate.location",),
        doc="The endpoint's certificate with its chain (PEM); with it clients have to use TLS. "
        "Read again when it changes.",
    )  # fmt: skip
    ssl_key_location: str = option(
        "ssl.key.location", "",
        doc="The certificate's key (PEM), if it isn't in ssl.keystore.location, too.",
    )  # fmt: skip
    ssl_key_password: str = option(
        "ssl.key.password", "", secret=True,
        doc="Of the key, if it is encrypted.",
    )  # fmt: skip
    ssl_truststore_location: str = option(
        "ssl.truststore.location", "", also=("ssl.ca.location",),
        doc="The authorities (PEM) whose certificates clients may show. Read again when it "
        "changes.",
    )  # fmt: skip
    ssl_client_auth: str = option(
        "ssl.client.auth", "none", choices=("none", "requested", "required"), any_case=True,
        doc="Whether clients have to show a certificate; its subject (CN=alice,O=x) is then their "
        "name, unless they authenticate by SASL.",
    )  # fmt: skip
    group_initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms", 3000,
        doc="How long (ms) a new consumer group waits for further members before its first "
        "rebalance.",
    )  # fmt: skip
    group_min_session_timeout_ms: int = option(
        "group.min.session.timeout.ms", 6000,
        doc="Shortest session timeout (ms) that consumers may ask for.",
    )  # fmt: skip
    group_max_session_timeout_ms: int = option(
        "group.max.session.timeout.ms", 1_800_000,
        doc="Longest session timeout (ms) that consumers may ask for.",
    )  # fmt: skip
    group_max_size: int = option(
        "group.max.size", INT_MAX, low=1,
        doc="Most members of a consumer group.",
    )  # fmt: skip
    group_members_max_bytes: int = option(
        "group.members.max.bytes", 64 << 20, low=1 << 20, long=True,
        doc="Own option: memory in bytes for what the members of all groups say of themselves and "
        "are assigned; beyond it nobody joins (GROUP_MAX_SIZE_REACHED).",
    )  # fmt: skip
    group_consumer_session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms", 45_000, low=1,
        doc="Session timeout (ms) of members of the consumer protocol (KIP-848).",
    )  # fmt: skip
    group_consumer_heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms", 5_000, low=1,
        doc="How often (ms) members of the consumer protocol are told to send heartbeats.",
    )  # fmt: skip
    group_consumer_max_size: int = option(
        "group.consumer.max.size", INT_MAX, low=1,
        doc="Most members of a group of the consumer protocol.",
    )  # fmt: skip
    offset_metadata_max_bytes: int = option(
        "offset.metadata.max.bytes", 4096,
        doc="Longest text, in characters, that a client may commit beside an offset.",
    )  # fmt: skip
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms", 600_000, low=1, long=True,
        doc="How often (ms) groups without members are forgotten, and commits of those at work "
        "kept from expiring. What has expired goes with the service's rounds.",
    )  # fmt: skip
    fetch_max_bytes: int = option(
        "fetch.max.bytes", 55 << 20, low=1024,
        doc="Most bytes of records in the answer to one fetch, but for a first batch that is "
        "larger, whatever the client allows.",
    )  # fmt: skip
    fetch_buffer_bytes: int = option(
        "fetch.buffer.bytes", 64 << 20, low=1 << 20,
        doc="Most bytes of records that answers to all fetches hold together until they are sent; "
        "each takes half of what is free at most. Kafka: its brokers send from the page cache.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for key in ENDPOINT_KEYS.values():
            key.check(getattr(self, key.field))

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Read options. Raises: InvalidRequestError, with the name, the value and what is valid."""
        found, rest = read(ENDPOINT_KEYS.values(), values)
        refuse_unknown(rest, ENDPOINT_KEYS)
        return cls(**found)


ENDPOINT_KEYS: Final[dict[str, Key]] = keys_of(EndpointOptions)
"""The endpoint's key -> its description."""
