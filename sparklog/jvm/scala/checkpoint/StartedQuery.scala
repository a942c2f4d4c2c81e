package org.apache.spark.sql.execution.streaming

import java.util.UUID

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.classic.SparkSession

/**
 * Describes a running query: its name, and the class and description of its sink, which the files
 * of a checkpoint do not contain. This object is in a package of Spark because
 * `SharedState.activeStreamingQueries` is private to it.
 */
object StartedQuery {
  /**
   * Return the running query `id` as JSON; None if the session of the calling thread doesn't know
   * it.
   */
  def describe(id: String): Option[String] = find(id).map { query =>
    val mapper = new ObjectMapper
    val fields = mapper.createObjectNode()
    fields.put("name", query.name)
    val description = query.sink match {
      case sink: Sink => sink.toString // a Sink has no name
      case table => table.name
    }
    fields.putObject("sink").put("class", query.sink.getClass.getName)
      .put("description", description)
    mapper.writeValueAsString(fields)
  }

  /**
   * Whether the query writes the plan of a micro-batch before anything else that follows the
   * previous micro-batch, as Spark's usual micro-batches do. In real-time mode the plan is written
   * at the end, and with asynchronous progress tracking at any time. True for an unknown query.
   */
  def writesOffsetsFirst(id: String): Boolean = find(id).forall { query =>
    query.getClass.getSimpleName == "MicroBatchExecution" &&
    query.trigger.getClass.getSimpleName != "RealTimeTrigger"
  }

  private def find(id: String) = for {
    session <- SparkSession.getActiveSession
    query <- Option(session.sharedState.activeStreamingQueries.get(UUID.fromString(id)))
  } yield query
}
