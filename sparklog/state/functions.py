"""Functions of users that change state, and the column families that follow from their rows.

Spark keeps some state twice: the index of a join counts the rows of each key, and a list has its
length. A function receives rows; the families that follow from the rows are computed from them.
The modules `joins` and `variables` compute the families of joins and of transformWithState.
"""

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from sparklog.checkpoint.spark_files.state_stores import DEFAULT_STORE
from sparklog.errors import InvalidRequestError
from sparklog.state.joins import SIDES, side_families, side_rows
from sparklog.state.tables import OperatorState, StateTables
from sparklog.state.variables import (
    TIMERS,
    Families,
    changeable_names,
    variable_families,
    variable_rows,
)

StateFunction = Callable[[DataFrame], DataFrame]
StateFunctions = StateFunction | Mapping[str, StateFunction]


def replaced_families(
    tables: StateTables, state: OperatorState, wanted: OperatorState, functions: StateFunctions
) -> Families:
    """Return {(store, family): new rows} for the families that functions change.

    Args:
        tables: Reads state.
        state: The state that the functions receive.
        wanted: The state whose columns they return: of the changed query, or `state`.
        functions: A function, or {side or variable: function}.

    Raises:
        InvalidRequestError: A function doesn't fit to the operator, or returns other columns.
    """
    operator = state.operator
    if operator.is_join:
        return _of_join(tables, state, wanted, _named(functions, SIDES, "a join"))
    if operator.is_transform:
        names = changeable_names(operator, wanted.operator)
        mode = "" if TIMERS in names else " with time mode None"
        given = _named(functions, names, f"transformWithState{mode}")
        return _of_variables(tables, state, wanted, given)
    if not callable(functions):
        raise InvalidRequestError(
            f"with_ must be a function for operator {operator.id} ({operator.name}); names of "
            "sides or state variables are for joins and transformWithState"
        )
    before, expected = (
        tables.table(each, DEFAULT_STORE, DEFAULT_STORE) for each in (state, wanted)
    )
    after = _checked(functions(before), expected, f"operator {operator.id}")
    return {(DEFAULT_STORE, DEFAULT_STORE): after}


def _named(
    functions: StateFunctions, names: tuple[str, ...], operator: str
) -> Mapping[str, StateFunction]:
    if callable(functions):
        raise InvalidRequestError(
            f"with_ must be a dict for {operator}: a function for one or more of "
            + ", ".join(names)
        )
    unknown = sorted(set(functions) - set(names))
    if unknown:
        raise InvalidRequestError(
            f"with_ names {', '.join(unknown)}, which {operator} doesn't have: use "
            + ", ".join(names)
        )
    return functions


def _of_variables(
    tables: StateTables,
    state: OperatorState,
    wanted: OperatorState,
    functions: Mapping[str, StateFunction],
) -> Families:
    found: Families = {}
    for name, function in functions.items():
        before, expected = (variable_rows(tables, each, name) for each in (state, wanted))
        what = name if name == TIMERS else f"state variable {name}"
        after = _checked(function(before), expected, what)
        found |= variable_families(after, wanted.operator, name)
    return found


def _of_join(
    tables: StateTables,
    state: OperatorState,
    wanted: OperatorState,
    functions: Mapping[str, StateFunction],
) -> Families:
    found: Families = {}
    for side, function in functions.items():
        before, expected = (side_rows(tables, each, side) for each in (state, wanted))
        # The rows are needed twice, and a function may return others the next time.
        after = _checked(function(before), expected, f"the {side} side").localCheckpoint()
        found |= side_families(tables, wanted, side, after)
    return found


def _checked(after: DataFrame, wanted: DataFrame, what: str) -> DataFrame:
    """Check that a function returned the columns of `wanted`.

    Raises:
        InvalidRequestError: Another column, type or order.
    """
    for name in ("key", "value"):
        expected = _struct(wanted, name)
        if name not in after.columns:
            raise InvalidRequestError(
                f"with_ of {what} must return the columns key and value; it returned "
                + ", ".join(after.columns)
            )
        # Without nullability, which Spark loses and adds freely.
        found, as_text = after.schema[name].dataType.simpleString(), expected.simpleString()
        if found != as_text:
            raise InvalidRequestError(
                f"with_ of {what} must return {name} as {as_text}; it returned {found}"
            )
    return after.select("key", "value")


def _struct(frame: DataFrame, name: str) -> StructType:
    return frame.schema[name].dataType  # type: ignore[return-value]
