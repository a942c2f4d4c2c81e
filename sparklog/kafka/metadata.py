"""What is here: ApiVersions, Metadata, DescribeCluster. Source: KafkaApis, MetadataRequest."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.clock import monotonic_ms
from sparklog.errors import SparklogError
from sparklog.format.names import KAFKA_INTERNAL
from sparklog.kafka.apis import Response, Served
from sparklog.kafka.broker import Broker, Node
from sparklog.kafka.error_codes import error_code
from sparklog.kafka.messages import Api, ErrorCode, Request
from sparklog.kafka.topic_admin import TopicAdmin
from sparklog.kafka.topic_ids import uuid_of
from sparklog.kafka.users import Right
from sparklog.log.log import view_of
from sparklog.log.partition_reader import reader_of
from sparklog.storage.view import TopicInfo

NOT_ASKED: Final = -(2**31)
"""Of authorized operations that a client didn't ask for, or isn't told of."""
EPOCHS_MS: Final = 5_000
"""So old the leader epochs may be that clients are told."""


def apis(broker: Broker) -> dict[Api, Served]:
    """Return what is served here."""
    metadata = Metadata(broker)
    return {
        Api.METADATA: Served((0, 13), metadata.metadata),
        Api.DESCRIBE_CLUSTER: Served((0, 2), metadata.describe_cluster),
    }


def api_versions(served: Mapping[Api, Served]) -> Served:
    """Return what answers ApiVersions: all that is served, itself included."""
    own = (0, 4)

    def answer(request: Request) -> Response:
        ranges = {api: each.advertised for api, each in served.items()} | {Api.API_VERSIONS: own}
        return {
            "error_code": ErrorCode.none,
            "api_keys": [
                {"api_key": api, "min_version": low, "max_version": high}
                for api, (low, high) in sorted(ranges.items())
            ],
        }

    return Served(own, answer)


class Metadata:
    """Topics, their partitions, and the one node that leads them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topic_admin = TopicAdmin.for_broker(broker)
        self._epochs: dict[str, _Epochs] = {}

    async def metadata(self, request: Request) -> Response:
        """Answer Metadata: of the topics asked for, by name or id, or of all."""
        asked = request.body.topics
        everything = asked is None or (request.version == 0 and not asked)
        broker = self._broker
        try:
            # Who asks for all takes a topic that isn't among them for one that isn't there.
            age_ms = 0 if everything else broker.partitions.news_ms
            topics = await broker.partitions.topics(max_age_ms=age_ms)
            refused = await self._auto_create(request, topics)
            if refused is not None:
                topics = await broker.partitions.topics(max_age_ms=0)
            found: list[TopicInfo | dict[str, Any]]
            if everything:
                found = [info for _, info in sorted(topics.items())]
            else:
                found = [await self._asked(each, topics, refused or {}) for each in asked]
            described = await self._describe(found)
        except SparklogError as error:
            code = error_code(error)
            described = [] if everything else [_unknown(each, code) for each in asked]
            return {**self._cluster(request), "error_code": code, "topics": described}
        return {**self._cluster(request), "topics": described}

    def describe_cluster(self, request: Request) -> Response:
        """Answer DescribeCluster; there are no controllers to be asked for (KIP-919)."""
        if getattr(request.body, "endpoint_type", 1) != 1:
            return {
                "error_code": ErrorCode.unsupported_endpoint_type,
                "error_message": "there are no controllers here: connect to the broker",
            }
        return {**self._cluster(request, node_id="broker_id"), "endpoint_type": 1}

    def _cluster(self, request: Request, *, node_id: str = "node_id") -> dict[str, Any]:
        """Return the cluster; the two APIs name a node's id differently.

        A client drops a coordinator that is missing from the list of brokers (librdkafka 2.16), so
        every endpoint that FindCoordinator names is in it.
        """
        broker = self._broker
        nodes = [Node(broker.node_id, *broker.address(request.connection))]
        other = broker.other_coordinator()
        if other is not None:
            nodes.append(other)
        return {
            "brokers": [
                {node_id: node.node_id, "host": node.host, "port": node.port, "rack": None}
                for node in nodes
            ],
            "cluster_id": broker.cluster_id,
            "controller_id": broker.node_id,
            "cluster_authorized_operations": NOT_ASKED,
        }

    async def _auto_create(
        self, request: Request, topics: Mapping[str, TopicInfo]
    ) -> dict[str, ErrorCode] | None:
        """Make the topics that are asked for by name and missing, where that is wanted.

        Returns {name: why it isn't there}; None: there was nothing to make.
        """
        broker, body = self._broker, request.body
        if not (broker.options.auto_create_topics_enable and broker.is_writable):
            return None
        if not getattr(body, "allow_auto_topic_creation", True):
            return None
        names = [each.name for each in body.topics or ()]
        missing = [name for name in names if name is not None and name not in topics]
        if not missing:
            return None
        if not broker.is_authorized(request.connection, Right.ADMIN):
            return dict.fromkeys(missing, ErrorCode.topic_authorization_failed)
        refused = await broker.run(self._topic_admin.auto_create, missing)
        broker.partitions.changed()
        return refused

    async def _asked(
        self, asked: Any, topics: Mapping[str, TopicInfo], refused: Mapping[str, ErrorCode]
    ) -> TopicInfo | dict[str, Any]:
        """Return a topic that was asked for, or the answer that it isn't there."""
        topic_id: UUID | None = getattr(asked, "topic_id", None)
        name = asked.name
        if topic_id is not None and not name:
            names = await self._broker.partitions.topic_names([topic_id])
            if topic_id not in names:
                return _unknown(asked, ErrorCode.unknown_topic_id)
            name = names[topic_id]
            topics = await self._broker.partitions.topics()
        if name not in topics:  # it may just have been made
            topics = await self._broker.partitions.topics(max_age_ms=0)
        if name not in topics:
            return _unknown(asked, refused.get(name, ErrorCode.unknown_topic_or_partition))
        return topics[name]

    async def _describe(self, found: Sequence[TopicInfo | dict[str, Any]]) -> list[dict[str, Any]]:
        epochs = await self._leader_epochs(each for each in found if isinstance(each, TopicInfo))
        return [
            self._topic(each, epochs[each.name]) if isinstance(each, TopicInfo) else each
            for each in found
        ]

    def _topic(self, info: TopicInfo, epochs: Mapping[int, int]) -> dict[str, Any]:
        node = self._broker.node_id
        return {
            "error_code": ErrorCode.none,
            "name": info.name,
            "topic_id": uuid_of(info.id) if info.id else None,
            "is_internal": info.name in KAFKA_INTERNAL,
            "topic_authorized_operations": NOT_ASKED,
            "partitions": [
                {
                    "partition_index": p,
                    "error_code": _partition_error(info, p),
                    "leader_id": node,
                    "leader_epoch": epochs.get(p, 0),
                    "replica_nodes": [node],
                    "isr_nodes": [node],
                    "offline_replicas": [node] if p in info.offline else [],
                }
                for p in sorted(info.dirs)
            ],
        }

    async def _leader_epochs(self, topics: Iterable[TopicInfo]) -> dict[str, dict[int, int]]:
        """Return {topic: {partition: newest leader epoch}}, at most EPOCHS_MS old.

        They seldom change: when a log is restored, say. A client that lags is told by Fetch.
        """
        now_ms = monotonic_ms()
        topics = list(topics)
        self._epochs = {
            name: each for name, each in self._epochs.items() if now_ms - each.read_ms < EPOCHS_MS
        }
        newest = {info.name: self._epochs[info.name].newest for info in topics if self._knows(info)}
        old = [info for info in topics if info.name not in newest]
        if old:
            newest |= await self._broker.run(epochs_of_topics, self._broker, old)
            for info in old:
                self._epochs[info.name] = _Epochs(info.id, now_ms, newest[info.name])
        return newest

    def _knows(self, info: TopicInfo) -> bool:
        known = self._epochs.get(info.name)
        return (
            known is not None
            and known.topic_id == info.id
            and known.newest.keys() == info.dirs.keys()
        )


class _Epochs(NamedTuple):
    """The newest leader epochs of a topic's partitions, as they were read at a time."""

    topic_id: str
    read_ms: float
    newest: dict[int, int]


def epochs_of_topics(broker: Broker, topics: Sequence[TopicInfo]) -> dict[str, dict[int, int]]:
    """Return `newest_epochs` of each topic by its name."""
    return {info.name: newest_epochs(broker, info) for info in topics}


def newest_epochs(broker: Broker, info: TopicInfo) -> dict[int, int]:
    """Return {partition: newest leader epoch}, 0 where none is known. Reads a small file each."""
    view = view_of(broker.log)
    return {
        p: 0 if p in info.offline else reader_of(view, info.name, p).leader_epoch() or 0
        for p in info.dirs
    }


def _partition_error(info: TopicInfo, partition: int) -> ErrorCode:
    return ErrorCode.leader_not_available if partition in info.offline else ErrorCode.none


def _unknown(asked: Any, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": asked.name,
        "topic_id": getattr(asked, "topic_id", None),
        "topic_authorized_operations": NOT_ASKED,
        "partitions": [],
    }
