"""The last stable offset, below which readers with read_committed may read."""

from sparklog.log.read_retry import retry_on_stale_read
from sparklog.storage.view import View


def last_stable_offset(view: View, topic: str, partition: int, end: int) -> int:
    """Return the first offset of the oldest transaction that is open at `end`, or `end`.

    Retries while segments move, as `retry_on_stale_read`.
    """
    return retry_on_stale_read(
        view, topic, partition, 0, end, lambda reader: reader.last_stable_offset(end)
    )
