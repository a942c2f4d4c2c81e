"""State that users can change: the state of a streaming query in a new checkpoint.

The functions are exported by `sparklog.checkpoint`. They use the state store providers of Spark,
through sparklog's jar.

- `rewrite`: a fork with changed state, or with state in another provider; `change`: writes the
state and the files that must agree with it; `functions`: the functions of users; `joins` and
`variables`: the sides of joins, and the state variables and timers of transformWithState, that
functions change
- `erase`: a fork without the rows that match a condition
- `bootstrap`: a new checkpoint with the state that a query has after a history
- `rebuild`: a new checkpoint with lost state that the query has computed again
- `template`: the checkpoint of a changed query
- `diff`: compares the state of two checkpoints; `comparison`: compares the rows of a family
- `tables`: reads and writes the state of an operator, by the jar; `operators`: which columns of a
key determine the partition
- `plain_copy`: a copy of a checkpoint in Spark's own files; `in_place`: exchanges a
checkpoint with its copy
"""

from sparklog.extras import needed

with needed():
    import pyspark  # noqa: F401
