"""OffsetCommit, OffsetFetch and OffsetDelete.

Source: OffsetMetadataManager, KafkaApis.handleOffsetCommitRequest (Kafka 4.1). The retention time
in commits of versions 2 to 4 is ignored; the log's offsets.retention.minutes applies.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.kafka.api_errors import group_error, name_error
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.groups.classic_group import State
from sparklog.kafka.groups.coordinator import Coordinator
from sparklog.kafka.groups.subscriptions import PROTOCOL_TYPE
from sparklog.kafka.messages import Api, ErrorCode, Request, Response, uuid_of
from sparklog.storage.groups import GROUP, Committed, Reader

_PROBE_MS: Final = 100  # a list this recent is sufficient to report a missing topic
_NO_OFFSET: Final = -1
Answer = dict[str, Any]


class OffsetRequests:
    """Handles requests about committed offsets. Used on the event loop's thread."""

    def __init__(self, broker: Broker, coordinator: Coordinator) -> None:
        self._broker, self._coordinator = broker, coordinator
        self._offsets = coordinator.offsets

    def apis(self) -> dict[Api, Served]:
        return {
            Api.OFFSET_COMMIT: Served((2, 10), self.commit),
            Api.OFFSET_FETCH: Served((1, 10), self.fetch),
            Api.OFFSET_DELETE: Served((0, 0), self.delete),
        }

    # --- OffsetCommit ------------------------------------------------------------------------

    async def commit(self, request: Request) -> Response:
        """Answer OffsetCommit once the commit is durable."""
        body = request.body
        error = name_error(body.group_id) or await self._coordinator.check()
        try:
            names, known = await self._topics(body.topics)
        except SparklogError as failure:
            names, known, error = {}, {}, error or group_error(body.group_id, failure)
        error = error or self._commit_refusal(request)
        answers: list[Answer] = []
        wanted: dict[TopicPartition, Committed] = {}
        for topic in body.topics:
            name = names.get(topic.topic_id) if request.version >= 10 else topic.name
            partitions = []
            for each in topic.partitions:
                at = self._committed(each)
                code = error or self._partition_refusal(name, each, known)
                if not code and name is not None:
                    wanted[TopicPartition(name, each.partition_index)] = at
                partitions.append({"partition_index": each.partition_index, "error_code": code})
            answers.append(_of_topic(topic, partitions))
        # All partitions in one write: a group's file or object is replaced as a whole.
        if wanted:
            code = await self._keep(request, wanted)
            for part in (p for topic in answers for p in topic["partitions"]):
                part["error_code"] = part["error_code"] or code
        return {"topics": answers}

    async def _keep(
        self, request: Request, wanted: Mapping[TopicPartition, Committed]
    ) -> ErrorCode:
        client = Reader(
            request.body.group_id, GROUP, request.connection.host, request.client_id or ""
        )
        try:
            await self._offsets.commit(client, wanted)
        except SparklogError as error:
            return group_error(request.body.group_id, error)
        return ErrorCode.none

    def _commit_refusal(self, request: Request) -> ErrorCode:
        """Return NONE if the sender may commit, which also extends a member's session.

        A group without members may commit. Members that were lost with their coordinator get
        UNKNOWN_MEMBER_ID, so that they join again. A broker, which remembers members, answers
        GROUP_ID_NOT_FOUND to clients that never were members. Source:
        ClassicGroup.validateOffsetCommit.
        """
        body = request.body
        generation = body.generation_id_or_member_epoch
        classic, modern = self._coordinator.classic, self._coordinator.modern
        if body.group_id in modern.groups:
            return modern.check_commit(
                modern.groups[body.group_id], body.member_id, generation, request.version
            )
        group = classic.groups.get(body.group_id)
        if group is None:
            if generation < 0:
                return ErrorCode.none
            is_old = request.version < 9
            return ErrorCode.illegal_generation if is_old else ErrorCode.unknown_member_id
        if generation < 0 and group.state is State.EMPTY:
            return ErrorCode.none
        instance_id = getattr(body, "group_instance_id", None)
        error = group.check_member(body.member_id, instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.illegal_generation
        if group.state is State.COMPLETING:
            return ErrorCode.rebalance_in_progress
        classic.keep(group, body.member_id)
        return ErrorCode.none

    def _committed(self, asked: Any) -> Committed:
        epoch = getattr(asked, "committed_leader_epoch", -1)
        return Committed(
            asked.committed_offset,
            0,
            metadata=asked.committed_metadata or "",
            leader_epoch=epoch if epoch >= 0 else None,
        )

    def _partition_refusal(
        self, name: str | None, asked: Any, known: Mapping[str, Mapping[int, Any]]
    ) -> ErrorCode:
        if name is None:
            return ErrorCode.unknown_topic_id
        if asked.partition_index not in known.get(name, {}):
            return ErrorCode.unknown_topic_or_partition
        if len(asked.committed_metadata or "") > self._broker.options.offset_metadata_max_bytes:
            return ErrorCode.offset_metadata_too_large
        return ErrorCode.offset_out_of_range if asked.committed_offset < 0 else ErrorCode.none

    async def _topics(
        self, asked: Sequence[Any]
    ) -> tuple[dict[UUID, str], dict[str, Mapping[int, Any]]]:
        """Return ({topic id: name}, {name: its partitions}) of the topics in a request."""
        ids = {topic.topic_id for topic in asked if getattr(topic, "topic_id", None) is not None}
        partitions = self._broker.partitions
        names = await partitions.topic_names(ids) if ids else {}
        wanted = {*names.values(), *(topic.name for topic in asked if hasattr(topic, "name"))}
        topics = await partitions.topics()
        if not wanted <= topics.keys():
            topics = await partitions.topics(max_age_ms=_PROBE_MS)
        return names, {name: topics[name].dirs for name in wanted if name in topics}

    # --- OffsetFetch -------------------------------------------------------------------------

    async def fetch(self, request: Request) -> Response:
        """Answer OffsetFetch for a single group, or from version 8 on for several.

        There are no transactions, so every commit is stable.
        """
        body = request.body
        if request.version >= 8:
            return {"groups": [await self._fetch_group(request, each) for each in body.groups]}
        found = await self._fetch_group(request, body)
        del found["group_id"]
        # these versions have no field for the group's error
        if request.version < 2 and found["error_code"]:
            for topic in found["topics"]:
                for part in topic["partitions"]:
                    part["error_code"] = found["error_code"]
        return found

    async def _fetch_group(self, request: Request, asked: Any) -> Answer:
        group = asked.group_id
        error = name_error(group) or await self._coordinator.check()
        modern = self._coordinator.modern
        member_id = getattr(asked, "member_id", None)
        if not error and member_id and asked.member_epoch >= 0 and group in modern.groups:
            error = modern.check_commit(
                modern.groups[group], member_id, asked.member_epoch, request.version
            )
        reader: Reader | None = None
        if not error:
            try:
                reader = await self._offsets.reader(group)
            except SparklogError as failure:
                error = group_error(group, failure)
        offsets = {} if reader is None else reader.offsets
        if error:
            every = [
                _of_topic(topic, [_position(p, None) for p in topic.partition_indexes])
                for topic in asked.topics or ()
            ]
            topics = every if request.version < 2 else []
        else:
            try:
                topics = await self._positions(request, asked.topics, offsets)
            except SparklogError as failure:
                topics, error = [], group_error(group, failure)
        return {"group_id": group, "topics": topics, "error_code": error}

    async def _positions(
        self,
        request: Request,
        asked: Sequence[Any] | None,
        offsets: Mapping[TopicPartition, Committed],
    ) -> list[Answer]:
        if asked is None:
            topics = _all_topics(offsets)
            return await self._with_ids(topics) if request.version >= 10 else topics
        names: Mapping[UUID, str] = {}
        if request.version >= 10:
            names = await self._broker.partitions.topic_names(topic.topic_id for topic in asked)
        found = []
        for topic in asked:
            name = names.get(topic.topic_id) if request.version >= 10 else topic.name
            code = ErrorCode.unknown_topic_id if name is None else ErrorCode.none
            found.append(
                _of_topic(
                    topic,
                    [
                        _position(p, offsets.get(TopicPartition(name or "", p)), code)
                        for p in topic.partition_indexes
                    ],
                )
            )
        return found

    async def _with_ids(self, topics: list[Answer]) -> list[Answer]:
        """Return the topics that exist, with their ids (OffsetFetch from version 10 on)."""
        known = await self._broker.partitions.topics()
        ids = {name: uuid_of(info.id) for name, info in known.items() if info.id}
        return [t | {"topic_id": ids[t["name"]]} for t in topics if t["name"] in ids]

    # --- OffsetDelete ------------------------------------------------------------------------

    async def delete(self, request: Request) -> Response:
        """Answer OffsetDelete for topics that no member subscribes to."""
        body = request.body
        error = name_error(body.group_id) or await self._coordinator.check()
        if error:
            return {"error_code": error, "topics": []}
        classic = self._coordinator.classic
        modern = self._coordinator.modern.groups.get(body.group_id)
        known_group = classic.groups.get(body.group_id)
        group = known_group if modern is None else modern
        is_active = self._coordinator.is_active(body.group_id)
        is_foreign = known_group is not None and known_group.protocol_type != PROTOCOL_TYPE
        if is_active and is_foreign:
            return {"error_code": ErrorCode.non_empty_group, "topics": []}
        try:
            _, known = await self._topics(body.topics)
        except SparklogError as failure:
            return {"error_code": group_error(body.group_id, failure), "topics": []}
        answers, keys = [], []
        for topic in body.topics:
            is_read = is_active and group is not None and group.is_subscribed_to(topic.name)
            partitions = []
            for each in topic.partitions:
                p = each.partition_index
                code = ErrorCode.none
                if p not in known.get(topic.name, {}):
                    code = ErrorCode.unknown_topic_or_partition
                elif is_read:
                    code = ErrorCode.group_subscribed_to_topic
                else:
                    keys.append(TopicPartition(topic.name, p))
                partitions.append({"partition_index": p, "error_code": code})
            answers.append({"name": topic.name, "partitions": partitions})
        try:
            reader = await self._offsets.reader(body.group_id)
            if reader is None and group is None:
                error = ErrorCode.group_id_not_found
            elif reader is not None and reader.kind != GROUP:
                error = ErrorCode.non_empty_group
            else:
                await self._offsets.forget(body.group_id, keys)
        except SparklogError as failure:
            error = group_error(body.group_id, failure)
        return {"error_code": error, "topics": [] if error else answers}


def _of_topic(asked: Any, partitions: list[Answer]) -> Answer:
    """Return a topic of a response, by name or id as in the request."""
    found: Answer = {"partitions": partitions}
    if hasattr(asked, "topic_id"):
        found["topic_id"] = asked.topic_id
    if hasattr(asked, "name"):
        found["name"] = asked.name
    return found


def _position(partition: int, at: Committed | None, code: ErrorCode = ErrorCode.none) -> Answer:
    epoch = _NO_OFFSET
    if at is not None:
        # Python readers record the epoch of the record before the offset, which is equivalent.
        known = at.leader_epoch if at.origin is None else at.origin.epoch
        epoch = _NO_OFFSET if known is None else known
    return {
        "partition_index": partition,
        "committed_offset": _NO_OFFSET if at is None else at.offset,
        "committed_leader_epoch": epoch,
        "metadata": "" if at is None else at.metadata,
        "error_code": code,
    }


def _all_topics(offsets: Mapping[TopicPartition, Committed]) -> list[Answer]:
    by_topic: dict[str, list[Answer]] = {}
    for (topic, partition), at in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(_position(partition, at))
    return [{"name": topic, "partitions": found} for topic, found in by_topic.items()]
