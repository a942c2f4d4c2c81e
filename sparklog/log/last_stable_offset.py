"""The last stable offset: up to where a read_committed reader may read."""

from sparklog.log.read_retry import retry_on_stale_read
from sparklog.storage.view import View


def last_stable_offset(view: View, topic: str, partition: int, end: int) -> int:
    """Return the first offset of the oldest transaction open at `end`, or `end`.

    As `retry_on_stale_read`.
    """
    return retry_on_stale_read(
        view, topic, partition, 0, end, lambda reader: reader.last_stable_offset(end)
    )
