"""Options of the endpoint, by the names of Kafka's broker configs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from sparklog.configdef import Key, keys_of, option, read, refuse_unknown


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
