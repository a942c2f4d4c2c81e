"""A small service to be tested: it consumes flights by Kafka and produces alerts of late ones."""

import json

from confluent_kafka import Consumer, KafkaError, Producer

LATE_MINUTES = 60


def run(bootstrap_servers: str) -> int:
    """Consume topic `flights` from where group `alerts` stands to its end; return how many alerts.

    It commits what it consumed when its alerts are there.
    """
    base = {"bootstrap.servers": bootstrap_servers}
    consumer = Consumer(
        {**base, "group.id": "alerts", "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    producer = Producer(base)
    consumer.subscribe(["flights"])
    seen, sent, ended = 0, 0, set[int]()
    try:
        while not ended or len(ended) < len(consumer.assignment()):
            message = consumer.poll(60)
            if message is None:
                raise TimeoutError("nothing of flights in 60 s, not even an end")
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(error.str())
                ended.add(message.partition())
                continue
            seen += 1
            delay = json.loads(message.value())["delay"]
            if delay >= LATE_MINUTES:
                producer.produce("alerts", f"late by {delay} min", message.key())
                sent += 1
        producer.flush()
        if seen:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sent
