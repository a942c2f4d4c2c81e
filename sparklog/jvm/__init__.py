"""Code for Spark's JVM: Scala sources, and the jar that they are compiled to.

- `jar`: returns a jar: given, packaged or compiled; `packaged_jar`: the package's own jars;
  `compiler`: runs Spark's Scala compiler; `jar_file`: reads and writes a jar and its versions
- `gateway`: calls the jar's code from Python, and gets large answers past py4j
- `plans`: the version of plans
- `scala/`: `checkpoint` (log-backed checkpoints), `format` (record batches), `sink` (turns rows
  into chunks), `source` (reads segments as rows), `datasource` (`format("sparklog")` in the JVM)
"""
