package org.apache.spark.sql.execution.datasources.v2.python

import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, SupportsTriggerAvailableNow}

/** Streams of Python data sources, which can limit micro-batches since Spark 4.2. */
object PythonStreams {
  type Stream = MicroBatchStream with SupportsTriggerAvailableNow

  /** Return the stream with its limits: sparklog's readers in Python support them. */
  def admitting(stream: MicroBatchStream): Stream = stream.asInstanceOf[Stream]
}
