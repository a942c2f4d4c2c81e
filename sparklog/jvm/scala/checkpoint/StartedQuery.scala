package org.apache.spark.sql.execution.streaming

import java.util.UUID

import com.fasterxml.jackson.databind.ObjectMapper

import org.apache.spark.sql.classic.SparkSession

/**
 * What a checkpoint doesn't say of its query: the query's name, and the sink's class and
 * description. It stands in Spark's package for `SharedState.activeStreamingQueries`.
 */
object StartedQuery {
  /** As JSON, of the running query `id`; None if the calling thread's session doesn't know it. */
  def describe(id: String): Option[String] = for {
    session <- SparkSession.getActiveSession
    query <- Option(session.sharedState.activeStreamingQueries.get(UUID.fromString(id)))
  } yield {
    val mapper = new ObjectMapper
    val fields = mapper.createObjectNode()
    fields.put("name", query.name)
    val description = query.sink match {
      case sink: Sink => sink.toString // whose name can't be asked for
      case table => table.name
    }
    fields.putObject("sink").put("class", query.sink.getClass.getName)
      .put("description", description)
    mapper.writeValueAsString(fields)
  }
}
