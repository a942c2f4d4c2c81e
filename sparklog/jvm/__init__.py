"""What runs in Spark's JVM: Scala sources, and the jar that they are compiled to.

- `jar`: compiled at first use, by the compiler that ships with pyspark
- `gateway`: the way from Python to what the jar has; `plans`: their version
- `scala/`: `checkpoint` (checkpoints as logs), `format` (record batches), `sink` (rows become
  chunks), `source` (segments become rows), `datasource` (`format("sparklog")` in the JVM)
"""
