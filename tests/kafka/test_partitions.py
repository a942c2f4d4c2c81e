"""What the endpoint knows of partitions: its own commits are known at once, looks may be older."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from sparklog.common import TopicPartition
from sparklog.kafka.partitions import Partitions
from sparklog.log.log import Log, view_of
from sparklog.storage.view import Offsets

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class SlowView:
    """A log's view whose looks answer what was true before `while_looking` was called."""

    def __init__(self, log: Log, while_looking: Callable[[], None]) -> None:
        self._view, self._while_looking = view_of(log), while_looking
        self.looks = 0

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        found = self._view.spans(keys)
        if threading.current_thread().name == "sparklog-kafka-watermarks":
            self.looks += 1
            self._while_looking()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


@pytest.mark.sparklog(topics={"t": 2})
def test_beside_a_steady_producer_others_commits_show_and_looks_keep_their_pace(
    sparklog_log: Log,
) -> None:
    """A commit of the endpoint's own overtakes each look, which tells of another's all the same."""
    own = threading.Event()
    ends: list[Offsets | None] = []  # what was known of KEY, at each change

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def commit() -> None:
            end = sparklog_log.append("t", pa.table({"value": ["own"]}), 0)["t"][0][1]
            loop.call_soon_threadsafe(partitions.advanced, {KEY: end})
            own.set()

        view = SlowView(sparklog_log, commit)
        with ThreadPoolExecutor(1) as pool:
            partitions = Partitions(view, loop, pool)  # type: ignore[arg-type]
            try:
                await partitions.spans([KEY, OTHER])
                partitions.watch([KEY], lambda: ends.append(partitions.known_span(KEY)))
                sparklog_log.append("t", pa.table({"value": ["another's"]}), 1)
                async with asyncio.timeout(240):
                    while partitions.known_span(OTHER) != (0, 1):
                        await asyncio.sleep(0.001)
                began, before = time.monotonic(), view.looks
                await asyncio.sleep(0.5)
                looks = view.looks - before  # between the two times, whatever stops this thread
                took_ms = (time.monotonic() - began) * 1000
                assert looks <= took_ms / view.poll_ms + 1
                known = partitions.known_span(KEY)
                assert known is not None
                assert known[1] <= sparklog_log.offsets("t")[0][1]
            finally:
                partitions.close()

    asyncio.run(run())
    assert own.is_set()
    assert len(ends) > 2
    known = [span[1] for span in ends if span is not None]
    assert known == sorted(known)
