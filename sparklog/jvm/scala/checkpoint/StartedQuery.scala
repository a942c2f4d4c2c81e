package org.apache.spark.sql.execution.streaming

import java.util.UUID

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.classic.SparkSession

/**
 * The query's name and the sink's class and description, which a checkpoint does not contain. In
 * Spark's package because of `SharedState.activeStreamingQueries`.
 */
object StartedQuery {
  /**
   * Describe the running query `id` as JSON; None if the calling thread's session doesn't know it.
   */
  def describe(id: String): Option[String] = for {
    session <- SparkSession.getActiveSession
    query <- Option(session.sharedState.activeStreamingQueries.get(UUID.fromString(id)))
  } yield {
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
}
