// Kafka clients of Node.js behind one interface: node main.mjs LIBRARY '{"do": "consume", ...}'.
//
// What was asked for is one JSON object; each record read or offset got is a line of JSON on standard
// output, in the order in which the library gave it. Exit status 1: the error is on standard error.
// tests/kafka/clients/programs.py has the other side, client.py says what each field means.
import { writeSync } from 'node:fs'
import { lines } from './common.mjs'

const [library, text] = process.argv.slice(2)
const task = JSON.parse(text)

try {
  await (await import(`./${library}.mjs`))[task.do](task)
} catch (error) {
  console.error(error)
  process.exitCode = 1
}
const all = Buffer.from(lines.join(''))
for (let at = 0; at < all.length;) {
  try {
    at += writeSync(1, all, at)
  } catch (error) {
    if (error.code !== 'EAGAIN') throw error // the pipe is full
  }
}
process.exit() // whatever timers a library left
