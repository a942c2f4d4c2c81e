"""Fetch: records for consumers, which wait here for later commits.

A consumer that has read everything waits at no cost: its partitions are watched, a single timing
wheel ends all waits, and a repeated request is not parsed again. Fetch sessions (KIP-227) are not
offered: each response has session id 0, as from a broker without room for sessions, so clients send
full requests.
Source: KafkaApis.handleFetchRequest, DelayedFetch, FetchManager.newContext (Kafka 4.1).
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.kafka.api_errors import error_code
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.client import Client
from sparklog.kafka.fetched_partitions import (
    FetchedPartition,
    FetchReader,
    RequestRead,
    partitions_of,
)
from sparklog.kafka.messages import (
    Answer,
    Api,
    Encoded,
    ErrorCode,
    Records,
    Request,
    Response,
    prepare,
)
from sparklog.kafka.offset_listing import READ_COMMITTED
from sparklog.kafka.partitions import Watch, known_partition
from sparklog.kafka.response_memory import BufferLease, ReadBuffers, ResponseMemory
from sparklog.kafka.timers import TimerTask, TimingWheel
from sparklog.log.log import view_of
from sparklog.storage.view import TopicInfo

# librdkafka changes the order of partitions in each Fetch: so many orders are recognized.
ALIKE_MAX: Final = 64
_FULL_EPOCHS: Final = (0, -1)  # session epochs of requests that list all partitions
_STORAGE_ERROR_SINCE: Final = 6  # older clients treat KAFKA_STORAGE_ERROR as fatal


def apis(broker: Broker) -> dict[Api, Served]:
    return {Api.FETCH: Served((4, 18), Fetching(broker).fetch)}


class _Consumer:
    """A connection that fetches: its last request, and the wait in progress."""

    __slots__ = (
        "alike",
        "body",
        "delayed",
        "empty",
        "incarnation",
        "is_news",
        "version",
        "watch",
    )  # fmt: skip

    def __init__(self) -> None:
        self.body: Any = None
        """Body of the request that `empty` answers."""
        self.version = -1
        self.alike: list[Any] = []
        """Bodies with the same content in another order."""
        self.empty: Encoded | None = None
        """The empty response, valid until a change, or None if the last response had content."""
        self.incarnation = 0
        self.watch: Watch | None = None
        self.is_news = True
        self.delayed: _DelayedFetch | None = None

    def repeats_last_request(self, request: Request) -> bool:
        """Return True if a request has the same content as the previous request, in any order."""
        body = request.body
        if body is self.body or any(body is each for each in self.alike):
            return True
        if request.version != self.version or _fetch_key(body) != _fetch_key(self.body):
            return False
        self.alike = [*self.alike[1 - ALIKE_MAX :], body]
        return True

    def wake(self) -> None:
        """Handle a change of a watched partition."""
        self.is_news = True
        if self.delayed is not None:
            self.delayed.wake()

    def close(self) -> None:
        """Release the wait and the watch when the connection ends."""
        if self.watch is not None:
            self.watch.close()
        if self.delayed is not None:
            self.delayed.close()


class _DelayedFetch:
    """A Fetch that waits until a partition changes or max.wait has elapsed.

    `news` and `timeout` are called then; one of them completes `future`.
    """

    __slots__ = ("future", "news", "timeout", "wait")

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        wheel: TimingWheel,
        delay_ms: float,
        news: Any,
        timeout: Any,
    ) -> None:
        self.future, self.news, self.timeout = future, news, timeout
        self.wait: TimerTask = wheel.after(delay_ms, self.expire)

    def wake(self) -> None:
        """Stop waiting, because a partition has changed."""
        self.wait.close()
        if not self.future.done():
            self.news()

    def expire(self) -> None:
        """Handle the end of max.wait."""
        if not self.future.done():
            self.timeout()

    def close(self) -> None:
        """Cancel the wait."""
        self.wait.close()


class Fetching:
    """Handles Fetch requests."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._partitions = broker.partitions
        self._view = view_of(broker.log)
        self._reader = FetchReader(self._view, broker.partition_cache)
        self.response_memory = ResponseMemory(broker.options.fetch_buffer_bytes)
        self._buffers = ReadBuffers()
        self._wheel = TimingWheel(broker.loop)
        self._consumers: dict[Client, _Consumer] = {}

    def fetch(self, request: Request) -> Answer | Awaitable[Answer | None]:
        """Answer Fetch: at once, when enough data is available, or when max.wait has elapsed."""
        consumer = self._consumers.get(request.connection)
        if consumer is None:
            consumer = self._consumers[request.connection] = _Consumer()
            request.connection.on_closed.append(lambda: self._forget(request.connection))
        if self._has_no_news(consumer) and consumer.repeats_last_request(request):
            return self._wait_for_news(consumer, request)
        return self.read_or_wait(consumer, request, self._deadline_s(request))

    def _forget(self, connection: Client) -> None:
        self._consumers.pop(connection).close()

    def _deadline_s(self, request: Request) -> float:
        return float(self._broker.loop.time() + max(request.body.max_wait, 0) / 1000)

    # --- unchanged requests -----------------------------------------------------------------------

    def _has_no_news(self, consumer: _Consumer) -> bool:
        return (
            consumer.empty is not None
            and not consumer.is_news
            and consumer.incarnation == self._view.incarnation
        )

    def _wait_for_news(
        self, consumer: _Consumer, request: Request
    ) -> Answer | Awaitable[Answer | None]:
        """Answer a repeated request without reading, because its last response was empty."""
        assert consumer.empty is not None
        empty, body = consumer.empty, request.body
        if body.max_wait <= 0 or body.min_bytes <= 0:
            return empty
        deadline_s = self._deadline_s(request)
        future = self._broker.loop.create_future()

        def read() -> None:
            consumer.delayed = None
            task = self._broker.loop.create_task(self.read_or_wait(consumer, request, deadline_s))
            # The connection cancels `future` when the client disconnects: the read ends as well.
            future.add_done_callback(lambda _: task.cancel())
            task.add_done_callback(lambda _: _copy_result(task, future))

        consumer.delayed = _DelayedFetch(
            future, self._wheel, body.max_wait, read, lambda: future.set_result(empty)
        )
        return future

    # --- reading ---------------------------------------------------------------------------------

    async def read_or_wait(
        self, consumer: _Consumer, request: Request, deadline_s: float
    ) -> Answer | None:
        """Look up and read the partitions, until there is data or the deadline is reached."""
        body, version = request.body, request.version
        consumer.body = consumer.empty = None
        consumer.alike = []
        if getattr(body, "session_epoch", -1) not in _FULL_EPOCHS:
            return {"error_code": ErrorCode.fetch_session_id_not_found, "session_id": 0}
        wanted = partitions_of(body)
        held, lease = 0, self._buffers.lease()
        try:
            # A log has one copy: a follower that fetches is a broker with a wrong configuration.
            if _replica_id(body) >= 0:
                for fetched in wanted:
                    fetched.error = ErrorCode.not_leader_or_follower
            while True:
                if held and self._view.incarnation != consumer.incarnation:
                    self.response_memory.release(held)
                    # The data that was read belongs to the replaced log.
                    held, wanted = 0, partitions_of(body)
                size = await self._read_partitions(consumer, wanted, request, held, lease)
                self.response_memory.hold(size)
                held += size
                bytes_min = min(body.min_bytes, self._bytes_max(body))
                if held >= bytes_min or _has_answer(wanted):
                    break
                left_ms = 1000 * (deadline_s - self._broker.loop.time())
                if left_ms <= 0 or not (consumer.is_news or await self._news(consumer, left_ms)):
                    break
            answer = _answer(wanted, version, committed=_is_committed(body))
            if not held and not _has_answer(wanted):
                consumer.empty = prepare(Api.FETCH, version, answer)
                consumer.body, consumer.version = body, version
            self._release_when_sent(request.connection, held, lease)
            held = 0
            return answer
        finally:
            self.response_memory.release(held)

    async def _read_partitions(
        self,
        consumer: _Consumer,
        wanted: list[FetchedPartition],
        request: Request,
        held: int,
        lease: BufferLease,
    ) -> int:
        """Read all partitions once; return the bytes read. Errors are set on the partitions."""
        incarnation, body = self._view.incarnation, request.body
        try:
            await self._resolve(wanted)
            resolved = [fetched for fetched in wanted if fetched.key is not None]
            known = (fetched.key for fetched in resolved)
            keys = list(dict.fromkeys(key for key in known if key is not None))
            # Watch before reading, so that a commit between the read and the wait is noticed.
            self._watch(consumer, keys)
            consumer.is_news, consumer.incarnation = False, incarnation
            spans = await self._partitions.spans(keys)
            for fetched in resolved:
                if fetched.key in spans:
                    fetched.span = spans[fetched.key]
                else:
                    gone = _unknown_error(fetched, {})
                    fetched.key = None
                    fetched.error = ErrorCode.none if fetched.size_bytes else gone
            committed = _is_committed(body)
            rest = [
                fetched
                for fetched in resolved
                if fetched.key is not None
                and not self._reader.is_at_end(fetched, committed=committed)
            ]
            if not rest:
                return 0
            allowed = min(
                self._bytes_max(body) - held,
                sum(fetched.bytes_max - fetched.size_bytes for fetched in rest),
                self.response_memory.allowance(),
            )
            # Reserved during the read, so that concurrent reads together respect the limit.
            self.response_memory.hold(allowed)
            try:
                read = RequestRead(
                    committed, incarnation, lease.allocate, request.connection.sends_files
                )
                return await self._broker.run(self._reader.read, rest, read, allowed, not held)
            finally:
                self.response_memory.release(allowed)
        except Exception as error:  # noqa: BLE001 - the client receives an error code
            code = error_code(error)
            for fetched in wanted:
                if not fetched.error and not fetched.size_bytes:
                    fetched.error = code
            return 0

    def _bytes_max(self, body: Any) -> int:
        return int(min(max(body.max_bytes, 0), self._broker.options.fetch_max_bytes))

    async def _resolve(self, wanted: list[FetchedPartition]) -> None:
        """Set the key and topic id of partitions, or the error of unknown partitions.

        The topics are listed again for unknown partitions, because a topic may have just been
        created.
        """
        topics = await self._partitions.topics()
        uuids = {fetched.topic_uuid for fetched in wanted if fetched.topic_uuid is not None}
        names: Mapping[Any, str] = {}
        if uuids:
            names = await self._partitions.topic_names(uuids)
            topics = await self._partitions.topics()
        for again in (True, False):
            missing = [fetched for fetched in wanted if not _is_resolved(fetched, names, topics)]
            if missing and again:
                topics = await self._partitions.topics(max_age_ms=self._view.poll_ms)
        for fetched in missing:
            fetched.key, fetched.error = None, _unknown_error(fetched, names)

    def _watch(self, consumer: _Consumer, keys: list[TopicPartition]) -> None:
        if consumer.watch is not None:
            if list(consumer.watch.keys) == keys:
                return
            consumer.watch.close()
        consumer.watch = self._partitions.watch(keys, consumer.wake)

    async def _news(self, consumer: _Consumer, left_ms: float) -> bool:
        """Wait until a partition changes. Return False if `left_ms` has elapsed before."""
        future = self._broker.loop.create_future()
        consumer.delayed = _DelayedFetch(
            future, self._wheel, left_ms,
            lambda: future.set_result(True), lambda: future.set_result(False),
        )  # fmt: skip
        try:
            return bool(await future)
        finally:
            if consumer.delayed is not None:
                consumer.delayed.close()
                consumer.delayed = None

    def _release_when_sent(self, connection: Client, held: int, lease: BufferLease) -> None:
        def sent(whole: bool) -> None:
            self.response_memory.release(held)
            # Otherwise the transport may still refer to the buffers, which must not be reused.
            if whole:
                lease.close()

        if held:
            connection.on_sent.append(sent)


def _has_answer(wanted: Iterable[FetchedPartition]) -> bool:
    """Return whether a partition has an answer without records, for which no fetch waits."""
    return any(fetched.error or fetched.diverging for fetched in wanted)


def _copy_result(task: "asyncio.Task[Any]", future: "asyncio.Future[Any]") -> None:
    if future.done() or task.cancelled():
        return
    error = task.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _fetch_key(body: Any) -> tuple[Any, ...]:
    """Return the content of a Fetch request, independent of the order of topics and partitions."""
    rest = {name: value for name, value in vars(body).items() if name != "topics"}
    asked = [
        (getattr(topic, "topic", None) or getattr(topic, "topic_id", None), each.partition, each)
        for topic in body.topics
        for each in topic.partitions
    ]
    return len(asked), rest, {(topic, partition): each for topic, partition, each in asked}


def _replica_id(body: Any) -> int:
    """Return the id of the requesting replica; -1 for a consumer."""
    state = getattr(body, "replica_state", None)
    return int(getattr(body, "replica_id", -1) if state is None else state.replica_id)


def _is_committed(body: Any) -> bool:
    return bool(body.isolation_level == READ_COMMITTED)


def _unknown_error(fetched: FetchedPartition, names: Mapping[Any, str]) -> ErrorCode:
    if fetched.topic_uuid is None or fetched.topic_uuid in names:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.unknown_topic_id


def _is_resolved(
    fetched: FetchedPartition, names: Mapping[Any, str], topics: Mapping[str, TopicInfo]
) -> bool:
    """Set the key of a partition; return False if the partition is unknown."""
    if fetched.error or fetched.size_bytes:
        return True  # the result of the first read is returned
    topic = fetched.topic if fetched.topic_uuid is None else names.get(fetched.topic_uuid, "")
    key = TopicPartition(topic, fetched.partition)
    if not known_partition(topics, key):
        return False
    fetched.key, fetched.topic_id = key, topics[topic].id or None
    if fetched.partition in topics[topic].offline:
        fetched.key, fetched.error = None, ErrorCode.kafka_storage_error
    return True


def _answer(wanted: Iterable[FetchedPartition], version: int, *, committed: bool) -> Response:
    """Return the response, with topics and partitions in the order of the request."""
    responses: list[dict[str, Any]] = []
    for fetched in wanted:
        same = responses and (fetched.topic, fetched.topic_uuid) == (
            responses[-1]["topic"], responses[-1]["topic_id"],
        )  # fmt: skip
        if not same:
            responses.append(
                {"topic": fetched.topic, "topic_id": fetched.topic_uuid, "partitions": []}
            )
        responses[-1]["partitions"].append(_partition(fetched, version, committed=committed))
    return {"error_code": ErrorCode.none, "session_id": 0, "responses": responses}


def _partition(fetched: FetchedPartition, version: int, *, committed: bool) -> dict[str, Any]:
    code = fetched.error
    if code is ErrorCode.kafka_storage_error and version < _STORAGE_ERROR_SINCE:
        code = ErrorCode.not_leader_or_follower
    found: dict[str, Any] = {"partition_index": fetched.partition, "error_code": code}
    if code is not ErrorCode.none:
        return found | {"high_watermark": -1, "records": b""}
    found |= {
        "high_watermark": fetched.span[1], "log_start_offset": fetched.span[0],
        "last_stable_offset": fetched.stable_offset, "records": Records(fetched.parts),
    }  # fmt: skip
    if fetched.diverging is not None:
        epoch, end = fetched.diverging
        found["diverging_epoch"] = {"epoch": epoch, "end_offset": end}
    found["aborted_transactions"] = None
    if committed:
        found["aborted_transactions"] = [
            {"producer_id": txn.producer_id, "first_offset": txn.first_offset}
            for txn in fetched.aborted
        ]
    return found
