"""The properties file of the broker that takes over a log: a single node, also the controller.

The file has only the settings that such a node needs; other settings have Kafka's defaults. The
quorum is static and contains only this node, so no voters have to be written to the metadata log.
Source: KafkaConfig, QuorumConfig, config/server.properties (Kafka 4.1).
"""

import re
from collections.abc import Sequence
from typing import Final

from sparklog.errors import InvalidRequestError

CONTROLLER: Final = "CONTROLLER"
DEFAULT_LISTENERS: Final = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
WRITTEN_BY: Final = "# Written by `sparklog handover`; add what you like, it is kept until then."

_LISTENER: Final = re.compile(r"([A-Za-z0-9_]+)://([^:,/\s]*|\[[0-9A-Fa-f:]+\]):([0-9]{1,5})")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OF_ONE: Final = {  # a broker's internal topics have three replicas by default
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


def server_properties(
    log_dirs: Sequence[str], *, node_id: int, listeners: str, metadata_log_dir: str
) -> str:
    """Return a broker's properties file.

    Args:
        log_dirs: The log dirs.
        node_id: The node id.
        listeners: As Kafka's key of this name. The listener named CONTROLLER is the controller's.
        metadata_log_dir: The directory of the metadata log; may also be one of `log_dirs`.

    Raises:
        InvalidRequestError: `listeners` is invalid, or lacks a listener for clients or for the
            controller.
    """
    found = _parsed(listeners)
    host, port = found[CONTROLLER]
    names = [*found, *(name for name in _PROTOCOLS if name not in found)]
    protocols = {name: name if name in _PROTOCOLS else "PLAINTEXT" for name in names}
    keys: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": f"{node_id}@{host or 'localhost'}:{port}",
        "listeners": ",".join(f"{name}://{h}:{p}" for name, (h, p) in found.items()),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": next(name for name in found if name != CONTROLLER),
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "log.dirs": ",".join(log_dirs),
    }
    if metadata_log_dir != log_dirs[0]:
        keys["metadata.log.dir"] = metadata_log_dir
    lines = [f"{key}={_escaped(value)}" for key, value in {**keys, **_OF_ONE}.items()]
    return "\n".join([WRITTEN_BY, *lines, ""])


def client_address(listeners: str) -> str:
    """Return HOST:PORT of the first listener for clients.

    Also raises the errors of `server_properties`.
    """
    host, port = next(at for name, at in _parsed(listeners).items() if name != CONTROLLER)
    return f"{host or 'localhost'}:{port}"


def _parsed(listeners: str) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for part in listeners.split(","):
        match = _LISTENER.fullmatch(part.strip())
        if match is None or not 0 < int(match[3]) < 1 << 16 or match[1].upper() in found:
            raise InvalidRequestError(
                f"listeners={listeners} must be NAME://HOST:PORT, joined by ',', each name once, "
                f"such as {DEFAULT_LISTENERS}"
            )
        found[match[1].upper()] = match[2], int(match[3])
    if CONTROLLER not in found or len(found) < 2:
        raise InvalidRequestError(
            f"listeners={listeners} must contain a listener {CONTROLLER} and a listener for "
            "clients, such as "
            f"{DEFAULT_LISTENERS}"
        )
    return found


def _escaped(value: object) -> str:
    """Escape a value for java.util.Properties: non-ASCII characters become escapes."""
    text = str(value).replace("\\", "\\\\")
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)
