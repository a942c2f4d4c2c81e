"""What runs in Spark's JVM, without Spark: `probe` asks Scala, the tests compare with Python."""
