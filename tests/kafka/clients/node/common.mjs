// What the libraries' drivers share.
const encoded = bytes => (bytes == null ? null : Buffer.from(bytes).toString('base64'))
export const decoded = text => (text == null ? null : Buffer.from(text, 'base64'))

export const lines = []
export const show = what => lines.push(JSON.stringify(what) + '\n')

// Ends a read: when nothing came for linger_ms after the wanted number, or at the time-out.
export class Clock {
  constructor (task) {
    this.task = task
    this.seen = 0
    this.until = Date.now() + task.timeout_ms
    this.over = new Promise(resolve => { this.end = resolve })
    this.touch()
  }

  touch () {
    clearTimeout(this.timer)
    const left = this.until - Date.now()
    const wait = this.seen >= this.task.count ? Math.min(left, this.task.linger_ms) : left
    this.timer = setTimeout(this.end, Math.max(wait, 0))
  }

  // `headers` is a list of [name, bytes or null].
  see ({ topic, partition, offset, timestamp, key, value, headers }) {
    this.seen += 1
    show({
      topic,
      partition,
      offset: Number(offset),
      timestamp: Number(timestamp),
      key: encoded(key),
      value: encoded(value),
      headers: headers.map(([key, value]) => ({ key, value: encoded(value) }))
    })
    this.touch()
  }
}
