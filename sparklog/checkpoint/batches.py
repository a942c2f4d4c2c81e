"""The batches of a checkpoint: their plans, commits and state, and which can be gone back to.

Spark can continue behind batch N from `offsets/N`, `offsets/N-1`, `commits/N`, version N + 1 of
every store, and for file sources their own log up to N's offset.
Source: MicroBatchExecution.populateStartOffsets (Spark 4.2).
"""

from functools import cached_property

from sparklog.checkpoint.commits import Commit, parse_commit
from sparklog.checkpoint.file_sources import missing_entries
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.offsets import BatchOffsets, log_offset_of, parse_offsets
from sparklog.checkpoint.stores import (
    Chain,
    Store,
    metadata_path,
    operators_of,
    read_metadata,
    stores_of,
)
from sparklog.errors import DataCorruptionError, InvalidRequestError


class Batches:
    """What a checkpoint says of its batches; reads each file once. Not thread-safe."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.planned = _numbers(checkpoint.names("offsets"))
        self.committed = _numbers(checkpoint.names("commits"))
        self._offsets: dict[int, BatchOffsets] = {}
        self._commits: dict[int, Commit] = {}
        self._metadata: dict[str, list[tuple[str, int]]] = {}

    @cached_property
    def stores(self) -> list[Store]:
        """The state stores."""
        return stores_of(self.checkpoint)

    @cached_property
    def operators(self) -> list[int]:
        """The stateful operators."""
        return operators_of(self.checkpoint)

    def offsets(self, batch: int) -> BatchOffsets:
        """Raises: FileNotFoundError; DataCorruptionError."""
        if batch not in self._offsets:
            path = f"offsets/{batch}"
            where, _ = self.checkpoint.locate(path)
            data = self.checkpoint.read(path)
            self._offsets[batch] = parse_offsets(data, batch=batch, path=where)
        return self._offsets[batch]

    def commit(self, batch: int) -> Commit:
        """Raises: FileNotFoundError; DataCorruptionError."""
        if batch not in self._commits:
            path = f"commits/{batch}"
            where, _ = self.checkpoint.locate(path)
            data = self.checkpoint.read(path)
            self._commits[batch] = parse_commit(data, batch=batch, path=where)
        return self._commits[batch]

    def obstacle(self, batch: int) -> str | None:
        """Why a fork or a reset can't go back to a batch; None if it can."""
        for name in ("commits", "offsets"):
            if not self.checkpoint.exists(f"{name}/{batch}"):
                return f"{name}/{batch} is gone" if batch < self._last else "it isn't committed"
        if batch and not self.checkpoint.exists(f"offsets/{batch - 1}"):
            return f"offsets/{batch - 1} is gone, which Spark wants to see, too"
        try:
            for chain in self.chains(batch).values():
                if chain.missing is not None:
                    return chain.missing
            for name, text in self.offsets(batch).sources.items():
                log_offset = log_offset_of(text)
                if log_offset is not None:
                    missing = missing_entries(self.checkpoint, name, log_offset)
                    if missing is not None:
                        return missing
        except (DataCorruptionError, FileNotFoundError) as error:
            return str(error)
        return None

    def chains(self, batch: int) -> dict[tuple[int, int, str], Chain]:
        """{(operator, partition, store): what loading the state after a batch takes}.

        Raises: FileNotFoundError, DataCorruptionError: of the commit or an operator's metadata.
        """
        ids = self.commit(batch).state_ids
        found: dict[tuple[int, int, str], Chain] = {}
        for store in self.stores:
            parts = None if ids is None else ids.get(store.operator)
            known = None
            if parts is not None:
                known = parts[store.partition] if store.partition < len(parts) else []
            chain = store.chain(self.checkpoint, batch + 1, known)
            found[store.operator, store.partition, store.name] = chain
        for operator in self.operators:
            for name, partitions in self._wanted(operator, batch):
                for part in range(partitions):
                    lost = f"there is no state of operator {operator}, partition {part}, {name}"
                    found.setdefault((operator, part, name), Chain([], lost))
        return found

    def _wanted(self, operator: int, batch: int) -> list[tuple[str, int]]:
        """The stores that an operator's metadata name, with their numbers of partitions."""
        path = metadata_path(self.checkpoint, operator, batch)
        if path is None:
            return []
        if path not in self._metadata:
            self._metadata[path] = read_metadata(self.checkpoint, path)
        return self._metadata[path]

    def reachable(self) -> list[int]:
        """The batches that can be gone back to, ascending. Cost: looks at every batch."""
        return [batch for batch in self.committed if self.obstacle(batch) is None]

    def check_reachable(self, batch: int) -> None:
        """Raises: InvalidRequestError naming the reason, and the earliest that can be had."""
        obstacle = self.obstacle(batch)
        if obstacle is None:
            return
        earliest = next((b for b in self.committed if self.obstacle(b) is None), None)
        hint = "none can be" if earliest is None else f"the earliest that can be is {earliest}"
        raise InvalidRequestError(
            f"{self.checkpoint.path} can't go back to batch {batch}: {obstacle}; {hint}"
        )

    @property
    def _last(self) -> int:
        return max([*self.planned, *self.committed], default=-1)


def _numbers(names: list[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isdecimal())
