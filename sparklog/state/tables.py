"""The state of a checkpoint's operators as Spark reads and writes it, by the jar of the session.

Reads and writes a checkpoint of Spark's own files, which the executors must reach.
"""

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Self

from pyspark.sql import DataFrame, SparkSession

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.spark_files.state_schema import (
    StateStoreSchema,
    is_avro,
    schema_paths,
    store_schema,
)
from sparklog.checkpoint.spark_files.state_stores import stores_info
from sparklog.errors import InvalidRequestError
from sparklog.jvm.gateway import Gateway, find_gateway
from sparklog.logdir.paths import store_url
from sparklog.state.operators import FamilyRule, Operator, family_rules, read_operator

_OBJECT: Final = "sparklog.state.StateTables"
_SOURCE: Final = "sparklog.state.HistorySource"
_STORE: Final = "spark.sql.streaming.stateStore"
FORMAT: Final = f"{_STORE}.checkpointFormatVersion"
PROVIDER: Final = f"{_STORE}.providerClass"
_FAULT: Final = "State of "
_NAMED: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


class Digest(NamedTuple):
    """The number of rows, and a sum of their hashes; equal state has equal digests."""

    rows: int
    hash: int


@dataclass(frozen=True)
class OperatorState:
    """The state of an operator after a batch, in a checkpoint of Spark's own files.

    Attributes:
        root: The URL of the directory `state`.
        operator: The operator.
        version: The version of the state: the batch, plus one.
        partitions: The number of state partitions.
        conf: Settings that the state depends on, such as the provider's class.
        schemas: The stores of the operator.
        ids: {store: the id in the file names of each partition}; empty in format 1.
        files: {store: the paths of its schema files}.
        prefixes: {store: the number of columns of the key's prefix}.
    """

    root: str
    operator: Operator
    version: int
    partitions: int
    conf: Mapping[str, str]
    schemas: Sequence[StateStoreSchema]
    ids: Mapping[str, Sequence[str]]
    files: Mapping[str, Sequence[str]]
    prefixes: Mapping[str, int]

    def plan(self) -> str:
        """Return the JSON that the jar reads."""
        stores = [
            {
                "name": schema.store,
                "hasFamilies": schema.has_families,
                "prefixColumns": self.prefixes[schema.store],
                "schemas": self.files[schema.store],
                "ids": self.ids.get(schema.store, []),
                "families": {
                    name: {"path": rule.path, "columns": rule.columns, "isList": rule.is_list}
                    for name, rule in self.rules(schema).items()
                },
            }
            for schema in self.schemas
        ]
        return json.dumps(
            {
                "root": self.root,
                "operator": self.operator.id,
                "version": self.version,
                "partitions": self.partitions,
                "conf": dict(self.conf),
                "stores": stores,
            }
        )

    def rules(self, schema: StateStoreSchema) -> dict[str, FamilyRule]:
        """Return how the rows of each family of a store are placed."""
        return family_rules(self.operator, schema)

    def columns(self) -> dict[tuple[str, str], str]:
        """Return {(store, family): the types of its key and value}. A list is named as such."""
        lists = self.operator.lists
        return {
            (schema.store, name): f"{each.key} -> {'list of ' if name in lists else ''}{each.value}"
            for schema in self.schemas
            for name, each in schema.families.items()
        }

    def families(self) -> list[tuple[str, str]]:
        """Return store and name of all families, in the order in which the jar numbers them."""
        return [(s.store, name) for s in self.schemas for name in sorted(s.families)]


def operator_state(batches: Batches, operator: int, batch: int, root: str) -> OperatorState:
    """Describe the state of an operator after a batch.

    Args:
        batches: The batches of the checkpoint, whose state is kept in files.
        operator: The number of the operator.
        batch: The batch.
        root: The URL of the checkpoint, by which Spark reads the files.

    Raises:
        InvalidRequestError: The operator can't be read in this way.
        DataCorruptionError: A file of the checkpoint is damaged.
    """
    checkpoint = batches.checkpoint
    found = read_operator(checkpoint, operator, batch)
    conf = batches.offsets(batch).conf
    if is_avro(conf):
        raise InvalidRequestError(
            f"the state of operator {operator} is encoded as Avro, which can't be rewritten"
        )
    infos = stores_info(checkpoint, operator, batch)
    schemas = [store_schema(checkpoint, operator, info.name) for info in infos]
    ids = batches.commit(batch).state_ids
    partitions = batches.partitions(operator, batch) or infos[0].partitions
    by_store: dict[str, list[str]] = {}
    if ids is not None:
        for number, info in enumerate(infos):
            by_store[info.name] = [part[number] for part in ids[operator]]
    state = {key: value for key, value in conf.items() if key.startswith("spark.sql.streaming.")}
    state[FORMAT] = "1" if ids is None else "2"
    return OperatorState(
        root=f"{root}/state",
        operator=found,
        version=batch + 1,
        partitions=partitions,
        conf=state,
        schemas=schemas,
        ids=by_store,
        files={
            info.name: [
                f"{root}/{path}" for path in schema_paths(operator, info) if checkpoint.exists(path)
            ]
            for info in infos
        },
        prefixes={info.name: info.prefix_columns for info in infos},
    )


class StateTables:
    """Reads and writes state through the jar of a session. A context manager.

    Args:
        spark: The session; None for the active session.
        scratch: If it is a URL of Spark, tasks read and write copies of the state there, and not
            the files themselves. They may then be on hosts that share no disk with the driver.

    Raises:
        InvalidRequestError: There is no session, or it has no jar of sparklog.
    """

    def __init__(
        self, spark: SparkSession | None, scratch: str | os.PathLike[str] | None = None
    ) -> None:
        spark = spark or _active_session()
        found = find_gateway(spark, wanted=True)
        if not isinstance(found, Gateway):
            raise InvalidRequestError(
                f"state can't be read or written in this session: {found.reason}"
            )
        self.spark, self._gateway = spark, found
        url = None if scratch is None else store_url(scratch)
        self._place = None if url is None else f"{url}/sparklog-state-{uuid.uuid4()}"
        self._places = 0
        self._copies: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Delete the copies of state."""
        if self._places:
            self._call("delete", self._session(), self._place)

    def table(self, state: OperatorState, store: str, family: str) -> DataFrame:
        """Return the rows of a family, with the columns partition_id, key and value."""
        plan = self._for_tasks(state).plan()
        return DataFrame(self._call("table", self._session(), plan, store, family), self.spark)

    def digests(self, state: OperatorState) -> list[list[Digest]]:
        """Return the digest of each partition and family. Reads all of the state."""
        found = self._digests(state, tolerant=False)
        return [[Digest(*family) for family in partition] for partition in found]

    def digests_or_faults(self, state: OperatorState) -> list[list[Digest] | str]:
        """Return the digests of each partition, or why the partition can't be read."""
        found = self._digests(state, tolerant=True)
        return [
            each if isinstance(each, str) else [Digest(*family) for family in each]
            for each in found
        ]

    def _digests(self, state: OperatorState, *, tolerant: bool) -> Any:
        plan = self._for_tasks(state).plan()
        return json.loads(self._call("digests", self._session(), plan, tolerant))

    def write(
        self,
        source: OperatorState,
        target: OperatorState,
        replaced: Mapping[tuple[str, str], DataFrame],
    ) -> tuple[list[dict[str, str]], list[list[Digest]]]:
        """Write the rows of `source` and other rows of some families as the files of `target`.

        Returns:
            For each partition {store: id in the file names}, and the digest of each family.
        """
        frames = [frame._jdf for frame in replaced.values()]
        names = [list(name) for name in replaced]
        there = target if self._place is None else replace(target, root=self._new_place())
        plans = self._for_tasks(source).plan(), there.plan()
        found = json.loads(self._call("write", self._session(), *plans, frames, names))
        if there is not target:
            self._copy(there.root, target.root, target.operator.id)
        digests = [[Digest(*family) for family in each["digests"]] for each in found]
        return [each["ids"] for each in found], digests

    def _for_tasks(self, state: OperatorState) -> OperatorState:
        """Return the state where tasks can read it."""
        if self._place is None:
            return state
        key = f"{state.root}/{state.operator.id}"
        if key not in self._copies:
            place = self._new_place()
            self._copy(state.root, place, state.operator.id)
            self._copies[key] = place
        return replace(state, root=self._copies[key])

    def _new_place(self) -> str:
        self._places += 1
        return f"{self._place}/{self._places}"

    def _copy(self, root: str, other: str, operator: int) -> None:
        self._call("copy", self._session(), f"{root}/{operator}", f"{other}/{operator}")

    @contextlib.contextmanager
    def streamed(self, frame: DataFrame) -> Iterator[DataFrame]:
        """Yield a streaming DataFrame whose single micro-batch is a batch DataFrame."""
        name = self._gateway.call(_SOURCE, "add", frame._jdf)
        try:
            reader = self.spark.readStream
            if self.spark.conf.get(_NAMED, "false") == "true":  # since Spark 4.3
                # Any name will do, because the new checkpoint has no offset of the source.
                reader = reader.name(f"history_{name.replace('-', '_')}")
            found = self._gateway.call(_SOURCE, "stream", reader._jreader, name)
            yield DataFrame(found, self.spark)
        finally:
            self._gateway.call(_SOURCE, "remove", name)

    def _session(self) -> Any:
        return self.spark._jsparkSession

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return self._gateway.call(_OBJECT, method, *map(self._java, arguments))
        except Exception as error:  # py4j's
            text = str(error)
            if _FAULT in text:
                raise InvalidRequestError(text[text.index(_FAULT) :].splitlines()[0]) from None
            raise

    def _java(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        jvm: Any = self.spark._jvm
        found = jvm.java.util.ArrayList()
        for each in value:
            found.add(self._java(each))
        return found


def sum_of(digests: Iterable[Digest]) -> Digest:
    """Return the digest of several partitions or families together."""
    found = list(digests)
    # The hash is an i64, as in the JVM.
    total = sum(each.hash for each in found) + 2**63
    return Digest(sum(each.rows for each in found), total % 2**64 - 2**63)


def _active_session() -> SparkSession:
    session = SparkSession.getActiveSession()
    if session is None:
        raise InvalidRequestError("there is no active Spark session: pass one as spark=")
    return session
