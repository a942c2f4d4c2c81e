"""CreateTopics, DeleteTopics and CreatePartitions.

The topics of a request are independent: an error of a topic does not affect the others. Messages
that clients may parse are Kafka's. Source: ReplicationControlManager, ControllerApis (Kafka 4.1).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, Self
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError
from sparklog.kafka.api_errors import REQUEST_ERRORS, ApiError, code_and_message, read_only_error
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import TIMED_OUT, Broker, run_with_timeout
from sparklog.kafka.messages import Api, ErrorCode, Request, Response, uuid_of
from sparklog.kafka.topic_configs import checked, topic_entries
from sparklog.log.log import Log, home_of
from sparklog.log.topic_names import check_new
from sparklog.storage.view import TopicInfo

PARTITIONS_MAX: Final = 10_000
"""Maximum partitions that one request creates.

Source: ReplicationControlManager.MAX_PARTITIONS_PER_BATCH.
"""
Answer = dict[str, Any]
Topics = dict[str, TopicInfo]


def apis(broker: Broker) -> dict[Api, Served]:
    admin = TopicAdmin.for_broker(broker)

    def handled(make: Any, late: Any) -> Any:
        async def handle(request: Request) -> Response:
            return await run_with_timeout(broker, request, make, late)

        return handle

    return {
        Api.CREATE_TOPICS: Served(
            (2, 7), handled(admin.create_topics, partial(_late, "topics", "topics"))
        ),
        Api.DELETE_TOPICS: Served((1, 6), handled(admin.delete_topics, _late_deletions)),
        Api.CREATE_PARTITIONS: Served(
            (0, 3), handled(admin.create_partitions, partial(_late, "topics", "results"))
        ),
    }


class TopicAdmin:
    """Creates, deletes and grows topics of a log. Methods block."""

    def __init__(
        self, log: Log, *, node_id: int, num_partitions: int, is_writable: bool
    ) -> None:
        """`num_partitions`: the default number of partitions of a new topic."""
        self._log, self._node_id = log, node_id
        self._num_partitions, self._is_writable = num_partitions, is_writable

    @classmethod
    def for_broker(cls, broker: Broker) -> Self:
        """Return the instance of an endpoint."""
        return cls(
            broker.log, node_id=broker.node_id, num_partitions=broker.options.num_partitions,
            is_writable=broker.is_writable,
        )  # fmt: skip

    # --- CreateTopics ------------------------------------------------------------------------

    def create_topics(self, body: Any) -> Response:
        """Create topics; with `validate_only` only check the request."""
        times = Counter(topic.name for topic in body.topics)
        known = self._log.topics()
        is_too_much = sum(map(self._asked, body.topics)) > PARTITIONS_MAX
        answers = []
        for topic in {topic.name: topic for topic in body.topics}.values():
            try:
                if times[topic.name] > 1:
                    raise ApiError(ErrorCode.invalid_request, "Duplicate topic name.")
                if is_too_much:  # the limit applies to the whole request, not to each topic
                    raise _too_many_partitions()
                answers.append(self._created(topic, known, body.validate_only))
            except REQUEST_ERRORS as error:
                answers.append(_refused(error, name=topic.name))
        return {"topics": answers}

    def auto_create(self, names: Iterable[str]) -> dict[str, ErrorCode]:
        """Create topics for metadata requests.

        Return {name: error of a topic that was not created}.
        Source: AutoTopicCreationManager, which makes clients retry until the topic exists.
        """
        refused = {}
        known = self._log.topics()
        left = PARTITIONS_MAX
        for name in names:
            try:
                if name in known:
                    continue
                left -= self._num_partitions
                if left < 0:
                    raise _too_many_partitions()
                self._made(name, self._num_partitions, {}, known)
            except REQUEST_ERRORS as error:
                refused[name] = code_and_message(error)[0]
        return refused

    def _asked(self, topic: Any) -> int:
        if topic.assignments:
            return len(topic.assignments)
        count: int = topic.num_partitions
        return self._num_partitions if count < 0 else count

    def _created(self, topic: Any, known: Topics, validate_only: bool) -> Answer:
        self._check_writable()
        name = topic.name
        if name in known:
            raise _exists(name)
        _check_new(name, known)
        values = {config.name: config.value for config in topic.configs}
        config = checked(values, base=home_of(self._log).commits.topic_defaults)
        count = self._partition_count(topic)
        topic_id = None
        if not validate_only:
            info = self._made(name, count, values, known)
            topic_id, config = uuid_of(info.id), info.config
        return {
            "name": name,
            "topic_id": topic_id,
            "error_code": ErrorCode.none,
            "error_message": None,
            "num_partitions": count,
            "replication_factor": 1,
            "configs": _creation_configs(config),
        }

    def _made(
        self, name: str, count: int, values: Mapping[str, Any], known: Topics
    ) -> TopicInfo:
        """Create a topic and add the topic to `known`.

        Raises:
            ApiError: The topic exists, because another process created it first.
        """
        self._check_writable()
        _check_new(name, known)
        try:
            info = self._log.create_topic(name, count, values)
        except InvalidRequestError:
            known.update(self._log.topics())
            if name in known:
                raise _exists(name) from None
            raise
        known[name] = info
        return info

    def _partition_count(self, topic: Any) -> int:
        """Return the number of partitions of a new topic.

        Raises:
            ApiError: The requested number, replication factor or assignment is not possible.
        """
        if topic.assignments:
            return self._assigned(topic)
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise ApiError(
                ErrorCode.invalid_replication_factor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise ApiError(
                ErrorCode.invalid_partitions,
                "Number of partitions was set to an invalid non-positive value.",
            )
        if topic.replication_factor > 1:
            factor = topic.replication_factor
            raise ApiError(
                ErrorCode.invalid_replication_factor,
                f"Unable to replicate the partition {factor} time(s): The target replication "
                f"factor of {factor} cannot be reached because only 1 broker(s) are registered. "
                "The log has one copy of each record, so ask for 1, or -1 for the default.",
            )
        return int(topic.num_partitions) if topic.num_partitions > 0 else self._num_partitions

    def _assigned(self, topic: Any) -> int:
        for field in ("replication_factor", "num_partitions"):
            if getattr(topic, field) != -1:
                said = "replication factor" if field == "replication_factor" else "numPartitions"
                raise ApiError(
                    ErrorCode.invalid_request,
                    f"A manual partition assignment was specified, but {said} was not set to -1.",
                )
        indexes = [each.partition_index for each in topic.assignments]
        for index, times in Counter(indexes).items():
            if times > 1:
                raise ApiError(
                    ErrorCode.invalid_replica_assignment,
                    f"Found multiple manual partition assignments for partition {index}",
                )
        for each in topic.assignments:
            self._check_assignment(each.broker_ids)
        if sorted(indexes) != list(range(len(indexes))):
            raise ApiError(
                ErrorCode.invalid_replica_assignment,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return len(indexes)

    def _check_assignment(self, brokers: Iterable[int]) -> None:
        """Raise ApiError unless each partition has the single node as its only replica.

        Source: ReplicationControlManager.validateManualPartitionAssignment.
        """
        replicas = list(brokers)
        why = None
        others = [each for each in replicas if each != self._node_id]
        if not replicas:
            why = "an empty replica list."
        elif others:
            why = f"broker {others[0]}, but no such broker is registered."
        elif len(replicas) > 1:
            why = f"the broker {self._node_id} more than once."
        if why is not None:
            raise ApiError(
                ErrorCode.invalid_replica_assignment,
                f"The manual partition assignment includes {why}",
            )

    # --- DeleteTopics ------------------------------------------------------------------------

    def delete_topics(self, body: Any) -> Response:
        """Delete topics by name or by id."""
        known = self._log.topics()
        ids = {uuid_of(info.id): name for name, info in known.items() if info.id}
        asked = _deletions(body)
        times = Counter(asked)
        meant = Counter(_name_of(each, ids) for each in times)
        meant[None] = 0  # unknown ids are not duplicates of each other
        answers = []
        for name, topic_id in times:
            try:
                if times[name, topic_id] > 1:
                    kind = "name" if name is not None else "id"
                    raise ApiError(ErrorCode.invalid_request, f"Duplicate topic {kind}.")
                if meant[_name_of((name, topic_id), ids)] > 1:
                    raise ApiError(
                        ErrorCode.invalid_request,
                        "The provided topic name maps to an ID that was already supplied.",
                    )
                answers.append(self._deleted(name, topic_id, known, ids))
            except REQUEST_ERRORS as error:
                answers.append(_refused(error, name=name, topic_id=topic_id))
        return {"responses": answers}

    def _deleted(
        self, name: str | None, topic_id: UUID | None, known: Topics, ids: Mapping[UUID, str]
    ) -> Answer:
        if name is None and topic_id is None:
            raise ApiError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
        if name is not None and topic_id is not None:
            raise ApiError(
                ErrorCode.invalid_request, "You may not specify both topic name and topic id."
            )
        self._check_writable()
        found = _name_of((name, topic_id), ids)
        if topic_id is not None and found is None:
            raise ApiError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
        if found is None or found not in known:
            raise _unknown(str(found))
        info = known[found]
        # By id, so that a topic that was created under this name in the meantime is not deleted.
        self._log.delete_topic(found, topic_id=info.id or None)
        known.pop(found)
        return {
            "name": found,
            "topic_id": uuid_of(info.id) if info.id else None,
            "error_code": ErrorCode.none,
            "error_message": None,
        }

    # --- CreatePartitions --------------------------------------------------------------------

    def create_partitions(self, body: Any) -> Response:
        times = Counter(topic.name for topic in body.topics)
        known = self._log.topics()
        answers = []
        for topic in {topic.name: topic for topic in body.topics}.values():
            try:
                if times[topic.name] > 1:
                    raise ApiError(ErrorCode.invalid_request, "Duplicate topic in request.")
                self._check_writable()
                self._check_growth(topic, known)
                if not body.validate_only:
                    self._log.alter_topic(topic.name, topic.count)
                answers.append(
                    {"name": topic.name, "error_code": ErrorCode.none, "error_message": None}
                )
            except REQUEST_ERRORS as error:
                answers.append(_refused(error, name=topic.name))
        return {"results": answers}

    def _check_growth(self, topic: Any, known: Topics) -> None:
        if topic.name not in known:
            raise _unknown(topic.name)
        held = known[topic.name].partitions
        if topic.count == held:
            raise ApiError(
                ErrorCode.invalid_partitions, f"Topic already has {held} partition(s)."
            )
        if topic.count < held:
            raise ApiError(
                ErrorCode.invalid_partitions,
                f"The topic {topic.name} currently has {held} partition(s); {topic.count} would "
                "not be an increase.",
            )
        if topic.count - held > PARTITIONS_MAX:
            raise _too_many_partitions()
        if topic.assignments is not None:
            additional = topic.count - held
            if len(topic.assignments) != additional:
                raise ApiError(
                    ErrorCode.invalid_replica_assignment,
                    f"Attempted to add {additional} additional partition(s), but only "
                    f"{len(topic.assignments)} assignment(s) were specified.",
                )
            for each in topic.assignments:
                self._check_assignment(each.broker_ids)

    def _check_writable(self) -> None:
        if not self._is_writable:
            raise read_only_error(self._log.path)


# --- responses -----------------------------------------------------------------------------------


def _refused(error: BaseException, **fields: Any) -> Answer:
    code, message = code_and_message(error)
    return {**fields, "error_code": code, "error_message": message}


def _exists(name: str) -> ApiError:
    return ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def _unknown(name: str) -> ApiError:
    return ApiError(
        ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist."
    )


def _too_many_partitions() -> ApiError:
    return ApiError(
        ErrorCode.policy_violation,
        f"Excessively large number of partitions per request: at most {PARTITIONS_MAX}.",
    )


def _check_new(name: str, known: Topics) -> None:
    try:
        check_new(name, known)
    except InvalidRequestError as error:
        raise ApiError(ErrorCode.invalid_topic_exception, str(error)) from None


def _creation_configs(config: TopicConfig) -> list[Answer]:
    wanted = ("name", "value", "read_only", "config_source", "is_sensitive")
    entries = topic_entries(config, is_writable=True)
    return [{field: entry[field] for field in wanted} for entry in entries]


def _deletions(body: Any) -> list[tuple[str | None, UUID | None]]:
    """Return the topics to delete as (name, topic id). Versions 1 to 5 have only names."""
    if hasattr(body, "topic_names"):
        return [(name, None) for name in body.topic_names]
    return [(topic.name, topic.topic_id) for topic in body.topics]


def _name_of(asked: tuple[str | None, UUID | None], ids: Mapping[UUID, str]) -> str | None:
    name, topic_id = asked
    return ids.get(topic_id) if topic_id is not None else name


# --- responses after a timeout -------------------------------------------------------------------


def _late(asked: str, answered: str, body: Any) -> Response:
    code, message = TIMED_OUT
    names = dict.fromkeys(topic.name for topic in getattr(body, asked))
    answer = {"error_code": code, "error_message": message}
    return {answered: [{"name": name, **answer} for name in names]}


def _late_deletions(body: Any) -> Response:
    code, message = TIMED_OUT
    answer = {"error_code": code, "error_message": message}
    asked = dict.fromkeys(_deletions(body))
    return {"responses": [{"name": name, "topic_id": i, **answer} for name, i in asked]}
