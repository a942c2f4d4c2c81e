package sparklog.state

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.{
  KeyStateEncoderSpec, NoPrefixKeyStateEncoderSpec, PrefixKeyScanStateEncoderSpec,
  StateSchemaCompatibilityChecker
}
import org.apache.spark.sql.types.StructType

/**
 * The state of one operator of a checkpoint, as of a version. Made by Python
 * (sparklog/state/tables.py).
 *
 * @param root the directory `state` of the checkpoint
 * @param version the version of the state: batch + 1
 * @param conf settings of the session that belong to the state, such as the provider's class
 */
private[state] final case class StatePlan(
    root: String,
    operator: Long,
    version: Long,
    partitions: Int,
    conf: Map[String, String],
    stores: Seq[StorePlan]) {

  /** All column families of all stores; a row of state names its family by the position here. */
  val families: IndexedSeq[FamilyPlan] = stores.flatMap(_.families).toIndexedSeq

  def indexOf(store: String, family: String): Int = families.indexWhere { found =>
    found.store == store && found.name == family
  }
}

/**
 * A state store of an operator.
 *
 * @param ids the ids in the names of the files, by partition; empty in format 1
 */
private[state] final case class StorePlan(
    name: String,
    hasFamilies: Boolean,
    ids: Seq[String],
    families: Seq[FamilyPlan])

/**
 * A column family of a store, or a store without families.
 *
 * @param isList whether a key has a list of values
 * @param partitionKey the fields of the key that determine the partition: the way to the struct
 *   that contains them, and their number
 */
private[state] final case class FamilyPlan(
    store: String,
    name: String,
    key: StructType,
    value: StructType,
    encoder: KeyStateEncoderSpec,
    isList: Boolean,
    partitionKey: (Seq[String], Int)) {

  /** Whether Spark leaves the rows out of the number of rows that a query reports. */
  def isInternal: Boolean =
    name.startsWith("$") || name.endsWith("-keyToNumValues") || name.endsWith("-tsWithKey")
}

private[state] object StatePlan {
  private val mapper = new ObjectMapper

  /** Parse a plan. Reads the schema files that it names. */
  def parse(json: String, hadoop: Configuration): StatePlan = {
    val plan = mapper.readTree(json)
    StatePlan(
      plan.path("root").asText,
      plan.path("operator").asLong,
      plan.path("version").asLong,
      plan.path("partitions").asInt,
      plan.path("conf").properties.asScala.map(e => e.getKey -> e.getValue.asText).toMap,
      plan.path("stores").elements.asScala.map(store(_, hadoop)).toSeq
    )
  }

  private def store(plan: JsonNode, hadoop: Configuration): StorePlan = {
    val name = plan.path("name").asText
    val rules = plan.path("families")
    // A later file contains all families again.
    val schemas = texts(plan.path("schemas")).flatMap { file =>
      val path = new Path(file)
      val in = path.getFileSystem(hadoop).open(path)
      try StateSchemaCompatibilityChecker.readSchemaFile(in)
      finally in.close()
    }
    val families = schemas.groupBy(_.colFamilyName).values.map(_.last).toSeq
    StorePlan(
      name,
      plan.path("hasFamilies").asBoolean,
      texts(plan.path("ids")),
      families.sortBy(_.colFamilyName).map { schema =>
        val rule = rules.path(schema.colFamilyName)
        val prefix = plan.path("prefixColumns").asInt
        val encoder = schema.keyStateEncoderSpec.getOrElse {
          if (prefix == 0) NoPrefixKeyStateEncoderSpec(schema.keySchema)
          else PrefixKeyScanStateEncoderSpec(schema.keySchema, prefix)
        }
        FamilyPlan(
          name,
          schema.colFamilyName,
          schema.keySchema,
          schema.valueSchema,
          encoder,
          rule.path("isList").asBoolean,
          (texts(rule.path("path")), rule.path("columns").asInt)
        )
      }
    )
  }

  private def texts(node: JsonNode): Seq[String] = node.elements.asScala.map(_.asText).toSeq
}
