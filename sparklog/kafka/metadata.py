"""ApiVersions, Metadata and DescribeCluster. Source: KafkaApis, MetadataRequest."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.clock import monotonic_ms
from sparklog.errors import SparklogError
from sparklog.format.names import KAFKA_INTERNAL
from sparklog.kafka.api_errors import error_code
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker, Node
from sparklog.kafka.messages import Api, ErrorCode, Request, Response, uuid_of
from sparklog.kafka.topic_admin import TopicAdmin
from sparklog.kafka.users import Right
from sparklog.log.log import view_of
from sparklog.log.partition_reader import reader_of
from sparklog.storage.view import TopicInfo

NOT_ASKED: Final = -(2**31)
"""Value of authorized operations that were not requested or are not reported."""
EPOCHS_MS: Final = 5_000
"""Maximum age of the leader epochs in responses."""


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handlers of Metadata and DescribeCluster."""
    metadata = Metadata(broker)
    return {
        Api.METADATA: Served((0, 13), metadata.metadata),
        Api.DESCRIBE_CLUSTER: Served((0, 2), metadata.describe_cluster),
    }


def api_versions(served: Mapping[Api, Served]) -> Served:
    """Return the handler of ApiVersions for all served APIs, including itself."""
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
    """Handles Metadata and DescribeCluster: a single node leads all partitions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topic_admin = TopicAdmin.for_broker(broker)
        self._epochs: dict[str, _Epochs] = {}

    async def metadata(self, request: Request) -> Response:
        """Answer Metadata for the requested topics, by name or id, or for all topics."""
        asked = request.body.topics
        everything = asked is None or (request.version == 0 and not asked)
        broker = self._broker
        try:
            # A client that lists all topics takes a missing topic for a deleted topic.
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
        """Answer DescribeCluster. Controllers cannot be described (KIP-919)."""
        if getattr(request.body, "endpoint_type", 1) != 1:
            return {
                "error_code": ErrorCode.unsupported_endpoint_type,
                "error_message": "this endpoint has no controllers: connect to the broker",
            }
        return {**self._cluster(request, node_id="broker_id"), "endpoint_type": 1}

    def _cluster(self, request: Request, *, node_id: str = "node_id") -> dict[str, Any]:
        """Return the fields of a response that describe the cluster: its id, nodes and controller.

        `node_id`: the name of the field for a node's id, which differs between the two APIs.

        librdkafka 2.16 drops a coordinator that is missing from the list of brokers, so the list
        contains every endpoint that FindCoordinator returns.
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
        """Create the topics that are requested by name and missing, if auto creation is enabled.

        Returns:
            {name: error of a topic that was not created}. None if nothing had to be created.
        """
        broker, body = self._broker, request.body
        if not (broker.options.auto_create_topics_enable and broker.is_writable):
            return None
        # Versions before 4 have no such field, and a broker creates topics for them.
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
        """Return a requested topic, or the response for an unknown topic."""
        topic_id: UUID | None = getattr(asked, "topic_id", None)
        name = asked.name
        if topic_id is not None and not name:
            names = await self._broker.partitions.topic_names([topic_id])
            if topic_id not in names:
                return _unknown(asked, ErrorCode.unknown_topic_id)
            name = names[topic_id]
            topics = await self._broker.partitions.topics()
        if name not in topics:  # the topic may have been created since the list was read
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
            **topic_fields(info),
            "partitions": [
                {
                    "partition_index": p,
                    "error_code": partition_error(info, p),
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

        Epochs change rarely, for example when a log is restored. Fetch corrects clients with an old
        epoch.
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
    """The newest leader epochs of a topic's partitions, and when they were read."""

    topic_id: str
    read_ms: float
    newest: dict[int, int]


def topic_fields(info: TopicInfo) -> dict[str, Any]:
    """Return the fields of a topic in responses, without the partitions."""
    return {
        "error_code": ErrorCode.none,
        "name": info.name,
        "topic_id": uuid_of(info.id) if info.id else None,
        "is_internal": info.name in KAFKA_INTERNAL,
        "topic_authorized_operations": NOT_ASKED,
    }


def partition_error(info: TopicInfo, partition: int) -> ErrorCode:
    """Return NONE, or LEADER_NOT_AVAILABLE for an offline partition."""
    return ErrorCode.leader_not_available if partition in info.offline else ErrorCode.none


def epochs_of_topics(broker: Broker, topics: Sequence[TopicInfo]) -> dict[str, dict[int, int]]:
    """Return the result of `newest_epochs` by topic name."""
    return {info.name: newest_epochs(broker, info) for info in topics}


def newest_epochs(broker: Broker, info: TopicInfo) -> dict[int, int]:
    """Return {partition: newest leader epoch}, 0 if unknown. Reads a small file per partition."""
    view = view_of(broker.log)
    return {
        p: 0 if p in info.offline else reader_of(view, info.name, p).leader_epoch() or 0
        for p in info.dirs
    }


def _unknown(asked: Any, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": asked.name,
        "topic_id": getattr(asked, "topic_id", None),
        "topic_authorized_operations": NOT_ASKED,
        "partitions": [],
    }
