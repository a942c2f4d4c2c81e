"""A template: the checkpoint of a changed query, from which schemas, metadata and settings come.

A query checks the types of the existing state when it starts, by schema files that Spark itself
writes. A run of the changed query with any input, in a checkpoint of its own, makes these files for
the Spark version in use. Its state is not used.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.truncation import below, relocated
from sparklog.errors import InvalidRequestError
from sparklog.state.tables import FORMAT, PROVIDER, OperatorState, operator_state


@dataclass(frozen=True)
class Template:
    """The checkpoint of a changed query after its newest batch, in Spark's own files.

    Attributes:
        batches: The batches of the checkpoint.
        place: The URL of the new checkpoint, which operators' metadata contain.
    """

    batches: Batches
    place: str

    @property
    def batch(self) -> int:
        """The newest batch."""
        return self.batches.committed[-1]

    @property
    def conf(self) -> Mapping[str, str]:
        """The settings of the changed query."""
        return self.batches.offsets(self.batch).conf

    def state(self, old: OperatorState) -> OperatorState:
        """Return the state of the changed query that replaces `old`.

        Provider and number of partitions do not change.

        Raises:
            InvalidRequestError: The template has another operator there.
        """
        number, path = old.operator.id, self.batches.checkpoint.path
        wanted = operator_state(self.batches, number, self.batch, f"file:{path}")
        if wanted.operator.name != old.operator.name:
            raise InvalidRequestError(
                f"operator {number} is {old.operator.name}, and in the template "
                f"{wanted.operator.name}: only a query with the same stateful operators can take "
                "over the state"
            )
        kept = {key: value for key, value in old.conf.items() if key in (PROVIDER, FORMAT)}
        conf = {**wanted.conf, **kept}
        return replace(wanted, version=old.version, partitions=old.partitions, conf=conf)

    def files(self, operator: int) -> dict[str, bytes]:
        """Return the schema files and the metadata of an operator, by path."""
        checkpoint = self.batches.checkpoint
        moved = relocated(checkpoint, partial(below, self.place))
        return {
            path: moved[path] if path in moved else checkpoint.read(path)
            for path in checkpoint.paths(f"state/{operator}")
            if "/_metadata/" in path or "/_stateSchema/" in path
        }


def check_operators(operators: list[int], template: Template) -> None:
    """Raise InvalidRequestError if a changed query has other stateful operators."""
    found = template.batches.operators
    if found != operators:
        raise InvalidRequestError(
            f"the template has the stateful operators {found}, and the checkpoint has {operators}: "
            "only a query with the same stateful operators can take over the state"
        )


def changed_columns(
    old: OperatorState, new: OperatorState, replaced: Collection[tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """Return {family: its columns before and after} for families with other columns.

    Raises:
        InvalidRequestError: No function computes the new columns.
    """
    before, after = old.columns(), new.columns()
    if old.operator.is_join and after.keys() - before.keys() - set(replaced):
        raise InvalidRequestError(
            f"operator {old.operator.id} is a join, and in the template a join with another state "
            "format: set with_ to functions for both sides, which return rows of the template's "
            "columns"
        )
    found = {}
    for family in before.keys() & after.keys():
        if before[family] == after[family]:
            continue
        name = "/".join(family)
        if family not in replaced:
            raise InvalidRequestError(
                f"{name} of operator {old.operator.id} has the columns {before[family]}, and in "
                f"the template {after[family]}: set with_ to a function that returns rows of the "
                "template's columns"
            )
        found[name] = before[family], after[family]
    return found
