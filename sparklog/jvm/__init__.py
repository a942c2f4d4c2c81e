"""What runs in Spark's JVM: Scala sources, and the jar that they are compiled to.

- `jar`: compiled at first use, or one that is given; `compiler`: Spark's own for Scala;
  `jar_file`: what a jar says it is
- `gateway`: the way from Python to what the jar has; `answer_file`: bytes past py4j; `plans`: their
  version
- `scala/`: `checkpoint` (checkpoints as logs), `format` (record batches), `sink` (rows become
  chunks), `source` (segments become rows), `datasource` (`format("sparklog")` in the JVM)
"""
