// SPDX-License-Identifier: Apache-2.0
// @clickhouse/client, unchanged, against chxad: see tests/e2e/test_clients.py for what is expected of it.
//
// Usage: node client.mjs URL DATABASE. Prints one JSON object: what each step gave.
import { createClient, ClickHouseError } from '@clickhouse/client'

const [url, database] = process.argv.slice(2)
const seen = {}

async function rest(method, path) {
  const response = await fetch(url + path, { method })
  return (await response.json()).state
}

async function count(client, table) {
  const rows = await client.query({ query: `SELECT count() AS n FROM ${table}`, format: 'JSONEachRow' })
  return Number((await rows.json())[0].n)
}

async function failure(promise) {
  try {
    await promise
    return null
  } catch (error) {
    return { typed: error instanceof ClickHouseError, code: error.code, type: error.type, message: error.message.slice(0, 300) }
  }
}

function connect(xid, compression) {
  return createClient({
    url,
    database,
    compression: { request: compression, response: compression },
    http_headers: xid ? { 'X-Chxa-Transaction': xid } : {},
  })
}

const plain = connect(null, false)
seen.ping = (await plain.ping()).success
await plain.command({ query: 'CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n' })

// one transaction: two formats, clear and gzip, and a stream
await rest('PUT', '/v1/transactions/node-1')
const inside = connect('node-1', false)
const packed = connect('node-1', true)
await inside.insert({ table: 't', format: 'JSONEachRow', values: [{ n: 1, s: 'a' }, { n: 2, s: 'b' }] })
await inside.insert({ table: 't', format: 'JSONCompactEachRow', columns: ['n', 's'], values: [[3, 'c']] })
await packed.insert({ table: 't', format: 'JSONEachRow', values: Array.from({ length: 10000 }, (_, i) => ({ n: 10 + i, s: 'gzip' })) })
await packed.command({ query: "INSERT INTO t VALUES (4, 'command')" })
const { Readable } = await import('node:stream')
await inside.insert({ table: 't', format: 'CSV', values: Readable.from(['5,"csv"\n', '6,"csv"\n'], { objectMode: false }) })
seen.before_commit = await count(inside, 't')
seen.before_commit_packed = await count(packed, 't')
seen.state = await rest('POST', '/v1/transactions/node-1/commit')
seen.after_commit = await count(plain, 't')

// by the settings of one insert instead of a header
await rest('PUT', '/v1/transactions/node-2')
const result = await plain.insert({
  table: 't',
  format: 'JSONEachRow',
  values: [{ n: 20000, s: 'x' }],
  clickhouse_settings: { chxa_txn: 'node-2' },
})
seen.summary_rows = result.summary?.written_rows
seen.query_id = result.query_id.length > 0
seen.in_second = await count(plain, 't')
await rest('POST', '/v1/transactions/node-2/rollback')
seen.after_rollback = await count(plain, 't')

// a bad row
await rest('PUT', '/v1/transactions/node-3')
const third = connect('node-3', true)
seen.bad_row = await failure(third.insert({ table: 't', format: 'JSONEachRow', values: [{ n: 'not a number', s: 1 }] }))
await third.insert({ table: 't', format: 'JSONEachRow', values: [{ n: 30000, s: 'good' }] })
await rest('POST', '/v1/transactions/node-3/commit')
seen.after_bad = await count(plain, 't')
seen.no_transaction = await failure(connect('nobody', false).insert({ table: 't', format: 'JSONEachRow', values: [{ n: 1, s: '' }] }))

// outside any transaction
await plain.insert({ table: 't', format: 'JSONEachRow', values: [{ n: 40000, s: 'outside' }] })
seen.outside = await count(plain, 't')
console.log(JSON.stringify(seen))
for (const client of [plain, inside, packed, third]) await client.close()
