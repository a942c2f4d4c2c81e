"""Client libraries of Python, in this process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka

from tests.kafka.clients.client import Client, ClientFailed, Record, Task

SESSION_MS: Final = 120_000
"""No stall of the machine is as long: a member that is put out, or a request that is sent again by
a producer that isn't idempotent, shows records twice."""


class _Clock:
    """Ends a read; all in seconds."""

    def __init__(self, task: Task) -> None:
        self._task, self.seen = task, list[Record]()
        self._until = time.monotonic() + task.timeout_ms / 1000

    @property
    def enough(self) -> bool:
        """Whether all came that should: an empty answer then ends it."""
        return len(self.seen) >= self._task.count

    def left(self) -> float:
        """How long to wait for more; 0 is the end."""
        left = self._until - time.monotonic()
        return max(min(left, self._task.linger_ms / 1000) if self.enough else left, 0)


class Confluent(Client):
    """confluent-kafka: librdkafka."""

    name = "confluent-kafka"

    def run(self, task: Task) -> list[Record]:
        try:
            return getattr(self, f"_{task.do}")(task)  # type: ignore[no-any-return]
        except confluent_kafka.KafkaException as error:
            raise ClientFailed(str(error)) from error

    def _consumer(self, task: Task, **more: Any) -> confluent_kafka.Consumer:
        if task.protocol:
            more["group.protocol"] = task.protocol
        if task.protocol != "consumer":  # there, the server decides
            more["session.timeout.ms"] = SESSION_MS
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": task.bootstrap, "group.id": task.group, "check.crcs": True,
                "isolation.level": "read_committed" if task.committed else "read_uncommitted",
                "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 2,
                **more,
            }
        )  # fmt: skip

    def _read(self, consumer: confluent_kafka.Consumer, task: Task) -> list[Record]:
        clock = _Clock(task)
        while (left := clock.left()) > 0:
            message = consumer.poll(left)
            if message is None:
                if clock.enough:
                    break
                continue
            if (error := message.error()) is not None:
                raise ClientFailed(str(error))
            clock.seen.append(_confluent(message))
        return clock.seen

    def _consume(self, task: Task) -> list[Record]:
        consumer = self._consumer(task)
        try:
            at = confluent_kafka.TopicPartition(task.topic, task.partition, task.start)
            consumer.assign([at])
            return self._read(consumer, task)
        finally:
            consumer.close()

    def _group(self, task: Task) -> list[Record]:
        consumer = self._consumer(task)
        try:
            consumer.subscribe([task.topic])
            seen = self._read(consumer, task)
            if seen:
                consumer.commit(asynchronous=False)
            return seen
        finally:
            consumer.close()

    def _produce(self, task: Task) -> list[Record]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": task.bootstrap, "acks": "all", "linger.ms": 5,
                "compression.type": task.compression, "enable.idempotence": task.idempotent,
                "message.timeout.ms": task.timeout_ms, "log_level": 2,
                "request.timeout.ms": SESSION_MS,
            }
        )  # fmt: skip
        done: list[Record] = []
        errors: list[Any] = []

        def told(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                done.append(Record(partition=message.partition(), offset=message.offset()))

        for record in task.records:
            producer.produce(
                task.topic, record.value, record.key, partition=record.partition,
                timestamp=record.timestamp or 0, headers=list(record.headers), on_delivery=told,
            )  # fmt: skip
        producer.flush(task.timeout_ms / 1000)
        if errors:
            raise ClientFailed(str(errors[0]))
        return done

    def _time(self, task: Task) -> list[Record]:
        consumer = self._consumer(task)
        try:
            ask = confluent_kafka.TopicPartition(task.topic, task.partition, task.timestamp)
            (found,) = consumer.offsets_for_times([ask], timeout=task.timeout_ms / 1000)
            if found.error is not None:
                raise ClientFailed(str(found.error))
            end = found.offset == confluent_kafka.OFFSET_END
            return [Record(offset=-1 if end else found.offset)]
        finally:
            consumer.close()


def _confluent(message: Any) -> Record:
    return Record(
        partition=message.partition(), offset=message.offset(), timestamp=message.timestamp()[1],
        key=message.key(), value=message.value(), headers=tuple(message.headers() or ()),
    )  # fmt: skip


def _of(message: Any) -> Record:
    return Record(
        partition=message.partition, offset=message.offset, timestamp=message.timestamp,
        key=message.key, value=message.value, headers=tuple(message.headers),
    )  # fmt: skip


class KafkaPython(Client):
    """kafka-python."""

    name = "kafka-python"

    def sent(self, record: Record) -> Record:
        """It refuses a header of null."""
        return replace(record, headers=tuple(h for h in record.headers if h[1] is not None))

    def run(self, task: Task) -> list[Record]:
        try:
            return getattr(self, f"_{task.do}")(task)  # type: ignore[no-any-return]
        except kafka.errors.KafkaError as error:
            raise ClientFailed(repr(error)) from error

    def _consumer(self, task: Task) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            bootstrap_servers=task.bootstrap,
            group_id=task.group if task.do == "group" else None,
            isolation_level="read_committed" if task.committed else "read_uncommitted",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
        )

    def _read(self, consumer: kafka.KafkaConsumer, task: Task) -> list[Record]:
        clock = _Clock(task)
        while (left := clock.left()) > 0:
            came = consumer.poll(timeout_ms=int(left * 1000) + 1)
            if not came and clock.enough:
                break
            for messages in came.values():
                clock.seen += map(_of, messages)
        return clock.seen

    def _consume(self, task: Task) -> list[Record]:
        consumer = self._consumer(task)
        try:
            where = kafka.TopicPartition(task.topic, task.partition)
            consumer.assign([where])
            consumer.seek(where, task.start)
            return self._read(consumer, task)
        finally:
            consumer.close()

    def _group(self, task: Task) -> list[Record]:
        consumer = self._consumer(task)
        try:
            consumer.subscribe([task.topic])
            seen = self._read(consumer, task)
            consumer.commit()
            return seen
        finally:
            consumer.close()

    def _produce(self, task: Task) -> list[Record]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=task.bootstrap,
            acks="all",
            compression_type=None if task.compression == "none" else task.compression,
            enable_idempotence=task.idempotent,
            linger_ms=5,
        )
        try:
            sent = [
                producer.send(
                    task.topic, record.value, record.key, list(record.headers),
                    partition=record.partition, timestamp_ms=record.timestamp,
                )
                for record in map(self.sent, task.records)
            ]  # fmt: skip
            done = [future.get(timeout=task.timeout_ms / 1000) for future in sent]
            return [Record(partition=one.partition, offset=one.offset) for one in done]
        finally:
            producer.close(timeout=240)

    def _time(self, task: Task) -> list[Record]:
        consumer = self._consumer(task)
        try:
            where = kafka.TopicPartition(task.topic, task.partition)
            found = consumer.offsets_for_times({where: task.timestamp})[where]
            return [Record(offset=-1 if found is None else found.offset)]
        finally:
            consumer.close()


class AioKafka(Client):
    """aiokafka, in a loop of its own."""

    name = "aiokafka"

    def run(self, task: Task) -> list[Record]:
        try:
            return asyncio.run(getattr(self, f"_{task.do}")(task))  # type: ignore[no-any-return]
        except aiokafka.errors.KafkaError as error:
            raise ClientFailed(repr(error)) from error

    def _consumer(self, task: Task) -> aiokafka.AIOKafkaConsumer:
        return aiokafka.AIOKafkaConsumer(
            bootstrap_servers=task.bootstrap,
            group_id=task.group if task.do == "group" else None,
            isolation_level="read_committed" if task.committed else "read_uncommitted",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
        )

    async def _read(self, consumer: aiokafka.AIOKafkaConsumer, task: Task) -> list[Record]:
        clock = _Clock(task)
        while (left := clock.left()) > 0:
            came = await consumer.getmany(timeout_ms=int(left * 1000) + 1)
            if not came and clock.enough:
                break
            for messages in came.values():
                clock.seen += map(_of, messages)
        return clock.seen

    async def _consume(self, task: Task) -> list[Record]:
        async with self._consumer(task) as consumer:
            where = aiokafka.TopicPartition(task.topic, task.partition)
            consumer.assign([where])
            consumer.seek(where, task.start)
            return await self._read(consumer, task)

    async def _group(self, task: Task) -> list[Record]:
        consumer = self._consumer(task)
        consumer.subscribe([task.topic])
        async with consumer:
            seen = await self._read(consumer, task)
            await consumer.commit()
            return seen

    async def _produce(self, task: Task) -> list[Record]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=task.bootstrap,
            acks="all",
            compression_type=None if task.compression == "none" else task.compression,
            enable_idempotence=task.idempotent,
            linger_ms=5,
            request_timeout_ms=SESSION_MS,
        )
        async with producer:
            sent = [
                await producer.send(
                    task.topic, record.value, record.key, partition=record.partition,
                    timestamp_ms=record.timestamp, headers=list(record.headers),
                )
                for record in task.records
            ]  # fmt: skip
            done = await asyncio.wait_for(asyncio.gather(*sent), task.timeout_ms / 1000)
            return [Record(partition=one.partition, offset=one.offset) for one in done]

    async def _time(self, task: Task) -> list[Record]:
        async with self._consumer(task) as consumer:
            where = aiokafka.TopicPartition(task.topic, task.partition)
            found = (await consumer.offsets_for_times({where: task.timestamp}))[where]
            return [Record(offset=-1 if found is None else found.offset)]
