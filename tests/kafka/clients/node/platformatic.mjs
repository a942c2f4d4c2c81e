import { Consumer, Producer } from '@platformatic/kafka'
import { Clock, decoded, show } from './common.mjs'

const base = task => ({ clientId: 'platformatic', bootstrapBrokers: [task.bootstrap], retries: 2 })

const reader = task => new Consumer({
  ...base(task),
  groupId: task.group,
  maxWaitTime: 200,
  minBytes: 1,
  isolationLevel: task.committed ? 1 : 0,
  autocommit: false
})

async function poll (task, consumer, how, each) {
  const stream = await consumer.consume({ topics: [task.topic], ...how })
  const clock = new Clock(task)
  const failed = new Promise((resolve, reject) => stream.on('error', reject))
  stream.on('data', message => {
    clock.see({ ...message, headers: [...message.headers].map(([key, value]) => [key.toString(), value]) })
    each(message)
  })
  await Promise.race([clock.over, failed])
  return stream
}

// It has no way to read without a group; it reads the partitions for which an offset is given.
export async function consume (task) {
  const consumer = reader(task)
  const offsets = [{ topic: task.topic, partition: task.partition, offset: BigInt(task.start) }]
  const stream = await poll(task, consumer, { mode: 'manual', offsets }, () => {})
  await stream.close()
  await consumer.close(true)
}

export async function group (task) {
  const consumer = reader(task)
  const last = new Map()
  const how = { mode: 'committed', fallbackMode: 'earliest' }
  const stream = await poll(task, consumer, how, message => last.set(message.partition, message))
  for (const message of last.values()) await message.commit()
  await stream.close()
  await consumer.close(true)
}

export async function produce (task) {
  const producer = new Producer({ ...base(task), idempotent: task.idempotent, autocreateTopics: false })
  const done = await producer.send({
    acks: -1,
    compression: task.compression,
    messages: task.records.map(record => ({
      topic: task.topic,
      partition: record.partition,
      key: decoded(record.key) ?? undefined,
      value: decoded(record.value) ?? undefined,
      timestamp: BigInt(record.timestamp),
      headers: new Map(record.headers.map(({ key, value }) => [Buffer.from(key), decoded(value)]))
    }))
  })
  for (const { partition, offset } of done.offsets) show({ partition, offset: Number(offset) })
  await producer.close()
}

export async function time (task) {
  const consumer = reader(task)
  const found = await consumer.listOffsets({
    topics: [task.topic],
    partitions: { [task.topic]: [task.partition] },
    timestamp: BigInt(task.timestamp)
  })
  show({ offset: Number(found.get(task.topic)[task.partition] ?? found.get(task.topic)[0]) })
  await consumer.close(true)
}
