"""Checks the arguments of an erasure, and creates its request and its report."""

import hashlib
import json
from collections.abc import Callable, Collection
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.format.erasure import KeyPredicate, RecordPredicate
from sparklog.log.topic_names import INTERNAL
from sparklog.storage.erasure_report import ErasureReport, sha256_of
from sparklog.storage.upkeep import ErasureRequest

_NAME: Final = 4  # hash digits: enough to recognize a request, too few to guess its keys

_OF_KEYS: Final = "records with other keys, whatever their values and headers say"
_NOT_COVERED: Final = (
    "copies that this log doesn't know of: backups and snapshots, forks, what was exported or "
    "replicated, what queries and consumers made of the records",
    "Spark's checkpoints and state, those that are kept as logs too",
    "what writers stage and commit from now on",
)
"""What no erasure can reach, wherever the log is kept; each home adds what is its own."""


def erasure_request(
    path: str,
    topic: str,
    keys: Collection[bytes],
    now_ms: int,
    *,
    predicate: RecordPredicate | None,
    partitions: Collection[int] | None,
    null_key: bool,
    before: int | None,
    before_ms: int | None,
    dry_run: bool,
    wait_ms: float,
    waiting: Callable[[str], None],
) -> tuple[ErasureRequest, ErasureReport]:
    """Return the checked request, and its report, still empty. Raises: InvalidRequestError."""
    if topic in INTERNAL:
        raise InvalidRequestError(f"topic {topic} belongs to sparklog and has no records of users")
    if not all(isinstance(key, bytes) for key in keys):
        raise InvalidRequestError("keys: want a collection of bytes, as they are in the log")
    if partitions is not None and not partitions:
        raise InvalidRequestError("partitions: none is given; leave it out for all of them")
    if predicate is not None and (keys or null_key or before_ms is not None):
        raise InvalidRequestError("give either keys (with null_key, before_ms) or a predicate")
    chosen = predicate or KeyPredicate(keys, null_key=null_key, before_ms=before_ms)
    said = [] if before is None else [f"offset {before}"]
    said += [] if before_ms is None else [f"timestamp {before_ms} ms"]
    digests = sha256_of(keys)
    what = [digests, null_key, before, before_ms, partitions and sorted(partitions)]
    what += [] if predicate is None else [type(predicate).__qualname__]
    request = ErasureRequest(
        topic=topic, predicate=chosen, partitions=partitions, before=before,
        name=hashlib.sha256(json.dumps(what).encode()).hexdigest()[:_NAME], wait_ms=wait_ms,
        waiting=waiting,
    )  # fmt: skip
    report = ErasureReport(
        path=path, log_id="", topic=topic, topic_id="", time_ms=now_ms, dry_run=dry_run,
        keys_sha256=digests, null_key=null_key, before=", ".join(said),
        not_covered=[*([_OF_KEYS] if predicate is None else []), *_NOT_COVERED],
    )  # fmt: skip
    return request, report
