package sparklog.state

import java.util.UUID

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{
  KeyStateEncoderSpec, NoPrefixKeyStateEncoderSpec, StateStore, StateStoreConf, StateStoreId,
  StateStoreProvider, StateStoreProviderId
}
import org.apache.spark.sql.internal.SQLConf

/**
 * The stores of one partition of an operator, as of a version; version 0 is empty.
 *
 * Providers are created directly. `StateStore.get` would keep them for maintenance, which deletes
 * versions.
 */
private[state] final class OpenStores(
    plan: StatePlan,
    partition: Int,
    version: Long,
    conf: StateStoreConf,
    hadoop: Configuration)
    extends AutoCloseable {
  private val providers = mutable.Map.empty[String, StateStoreProvider]
  private val stores = mutable.Map.empty[String, StateStore]

  /** Return the open store of that name. */
  def apply(store: StorePlan): StateStore = stores.getOrElseUpdate(store.name, open(store))

  private def open(store: StorePlan): StateStore = {
    val id = StateStoreId(plan.root, plan.operator, partition, store.name)
    val first = store.families.find(_.name == StateStore.DEFAULT_COL_FAMILY_NAME)
    val default = first.getOrElse(store.families.head)
    val provider = StateStoreProvider.createAndInit(
      StateStoreProviderId(id, UUID.randomUUID()),
      default.key,
      default.value,
      first.fold[KeyStateEncoderSpec](NoPrefixKeyStateEncoderSpec(default.key))(_.encoder),
      store.hasFamilies,
      conf,
      hadoop,
      useMultipleValuesPerKey = false,
      None
    )
    providers(store.name) = provider
    val fileId = if (version == 0) None else store.ids.lift(partition)
    val opened = provider.getStore(version, fileId)
    if (store.hasFamilies) {
      store.families.filter(_.name != StateStore.DEFAULT_COL_FAMILY_NAME).foreach { f =>
        opened.createColFamilyIfAbsent(f.name, f.key, f.value, f.encoder, f.isList, f.isInternal)
      }
    }
    opened
  }

  /** Write the stores as version 1, and return the ids of the files, by store; "" in format 1. */
  def commit(): Seq[(String, String)] = plan.stores.map { named =>
    val store = apply(named)
    store.commit()
    named.name -> store.getStateStoreCheckpointInfo().stateStoreCkptId.getOrElse("")
  }

  override def close(): Unit = {
    for (store <- stores.values if !store.hasCommitted) {
      store.abort()
    }
    providers.values.foreach(_.close())
  }
}

private[state] object OpenStores {

  /** Return the settings of a state store: those of the session, changed by those of the state. */
  def conf(session: SQLConf, changes: Map[String, String]): StateStoreConf = {
    val changed = session.clone()
    changes.foreach { case (key, value) => changed.setConfString(key, value) }
    StateStoreConf(changed)
  }
}
