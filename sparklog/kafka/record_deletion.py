"""DeleteRecords: deletes the records before an offset by raising the log start.

Source: KafkaApis.handleDeleteRecordsRequest, Partition.deleteRecordsOnLeader (Kafka 4.1), KIP-107.
"""

from collections.abc import Mapping
from typing import Any

from sparklog.format.names import KAFKA_INTERNAL
from sparklog.kafka.api_errors import REQUEST_ERRORS, code_and_message
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import TIMED_OUT, Broker, run_with_timeout
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.log.log import Log
from sparklog.storage.view import TopicInfo


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handler of DeleteRecords."""
    deletion = RecordDeletion(broker.log, is_writable=broker.is_writable)

    async def handle(request: Request) -> Response:
        return await run_with_timeout(broker, request, deletion.delete_records, _late)

    return {Api.DELETE_RECORDS: Served((0, 2), handle)}


class RecordDeletion:
    """Raises log start offsets. Its methods block."""

    def __init__(self, log: Log, *, is_writable: bool) -> None:
        self._log, self._is_writable = log, is_writable

    def delete_records(self, body: Any) -> Response:
        """Raise log starts; -1 means the high watermark.

        The log starts of all partitions of a topic are raised in a single step if possible. The
        response has no field for messages.
        """
        known = self._log.topics()
        answers = []
        for topic in body.topics:
            offsets = {each.partition_index: each.offset for each in topic.partitions}
            found = self._deleted_records(topic.name, offsets, known)
            partitions = [
                {"partition_index": p, "low_watermark": low, "error_code": code}
                for p, (low, code) in found.items()
            ]
            answers.append({"name": topic.name, "partitions": partitions})
        return {"topics": answers}

    def _deleted_records(
        self, name: str, offsets: Mapping[int, int], known: Mapping[str, TopicInfo]
    ) -> dict[int, tuple[int, ErrorCode]]:
        """Return {partition: (log start, error)}."""
        found: dict[int, tuple[int, ErrorCode]] = {}
        for p in offsets:
            why = self._why_not_deleted(known.get(name), name, p)
            if why is not None:
                found[p] = (-1, why)
        rest = {p: offset for p, offset in offsets.items() if p not in found}
        if rest:
            try:
                starts = self._log.delete_records(name, rest)
                found |= {p: (start, ErrorCode.none) for p, start in starts.items()}
            except REQUEST_ERRORS as error:
                if len(rest) == 1:
                    found |= dict.fromkeys(rest, (-1, code_and_message(error)[0]))
                else:  # find out which partitions fail; the others must not fail with them
                    for p, offset in rest.items():
                        found |= self._deleted_records(name, {p: offset}, known)
        return {p: found[p] for p in offsets}

    def _why_not_deleted(
        self, info: TopicInfo | None, name: str, partition: int
    ) -> ErrorCode | None:
        if info is None or partition not in info.dirs:
            return ErrorCode.unknown_topic_or_partition
        if not self._is_writable:
            return ErrorCode.topic_authorization_failed
        if name in KAFKA_INTERNAL:
            return ErrorCode.invalid_topic_exception
        return None if info.config.delete else ErrorCode.policy_violation


def _late(body: Any) -> Response:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "low_watermark": -1,
                        "error_code": TIMED_OUT[0],
                    }
                    for each in topic.partitions
                ],
            }
            for topic in body.topics
        ]
    }
