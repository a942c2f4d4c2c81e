import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import { Clock, decoded, show } from './common.mjs'

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = snappy

const client = task => new Kafka({ brokers: [task.bootstrap], logLevel: logLevel.ERROR })

// A name that comes several times is one array here: their order among others is lost.
const headers = given => Object.entries(given ?? {}).flatMap(([key, value]) =>
  (Array.isArray(value) ? value : [value]).map(one => [key, one]))

async function poll (task, groupId, wanted, started) {
  const consumer = client(task).consumer({
    groupId, readUncommitted: !task.committed, maxWaitTimeInMs: 200, retry: { retries: 2 }
  })
  await consumer.connect()
  await consumer.subscribe({ topic: task.topic, fromBeginning: true })
  const clock = new Clock(task)
  const crashed = new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
  })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      if (wanted(partition)) clock.see({ ...message, topic, partition, headers: headers(message.headers) })
    }
  })
  started(consumer)
  await Promise.race([clock.over, crashed])
  return consumer
}

// It has no way to read without a group.
export async function consume (task) {
  const consumer = await poll(task, task.group, partition => partition === task.partition, consumer =>
    consumer.seek({ topic: task.topic, partition: task.partition, offset: String(task.start) }))
  await consumer.disconnect()
}

export async function group (task) {
  const next = new Map()
  const kafka = client(task)
  const consumer = kafka.consumer({
    groupId: task.group, readUncommitted: !task.committed, maxWaitTimeInMs: 200, retry: { retries: 2 }
  })
  await consumer.connect()
  await consumer.subscribe({ topic: task.topic, fromBeginning: true })
  const clock = new Clock(task)
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      clock.see({ ...message, topic, partition, headers: headers(message.headers) })
      next.set(partition, String(BigInt(message.offset) + 1n))
    }
  })
  await clock.over
  await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic: task.topic, partition, offset })))
  await consumer.disconnect()
}

export async function produce (task) {
  const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
  const producer = client(task).producer({
    idempotent: task.idempotent, allowAutoTopicCreation: false, retry: { retries: 2 }
  })
  await producer.connect()
  const done = await producer.send({
    topic: task.topic,
    acks: -1,
    compression: codecs[task.compression],
    messages: task.records.map(record => ({
      key: decoded(record.key),
      value: decoded(record.value),
      partition: record.partition,
      timestamp: String(record.timestamp),
      headers: Object.fromEntries( // it can't write a null
        record.headers.filter(({ value }) => value != null).map(({ key, value }) => [key, decoded(value)]))
    }))
  })
  // The base offset of a batch is all it tells.
  for (const { partition, baseOffset } of done) show({ partition, offset: Number(baseOffset) })
  await producer.disconnect()
}

export async function time (task) {
  const admin = client(task).admin()
  await admin.connect()
  const found = await admin.fetchTopicOffsetsByTimestamp(task.topic, task.timestamp)
  const { offset } = found.find(({ partition }) => partition === task.partition)
  show({ offset: Number(offset) })
  await admin.disconnect()
}
