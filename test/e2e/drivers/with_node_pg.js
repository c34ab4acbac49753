/*
 * with_node_pg.js: the driver program for node-postgres; doc/drivers/node-pg.md shows parts of it.
 * The commands are those of protocol.py.
 */
'use strict';

const readline = require('node:readline');
// doc: connect
const { Client } = require('pg');

async function connect() {
    const client = new Client();            // the environment says where: PGHOST and so on
    // without this a connection that breaks ends the process
    client.on('error', (error) => console.error(error.message));
    await client.connect();
    return client;
}
// doc: end

// doc: claim
async function claim(client, key, params, occurredAt = null, lease = null) {
    // outside BEGIN a statement has committed when its answer is here
    const { rows } = await client.query(
        'SELECT outcome, generation, attempt, lease_until, params, differs' +
        ' FROM idem_claim($1, $2, occurred_at => $3, lease => $4)',
        [key, params, occurredAt, lease]);
    return rows[0];                         // generation is a string: keep it one
}
// doc: end

// doc: complete
async function transaction(client, work) {
    await client.query('BEGIN');
    try {
        const value = await work();
        await client.query('COMMIT');
        return value;
    } catch (error) {
        await client.query('ROLLBACK').catch(() => {});     // a connection that broke has done it
        throw error;
    }
}

async function complete(client, key, generation, result, reference, amount) {
    await transaction(client, async () => {
        await client.query('SELECT idem_complete($1, $2, $3, $4)',
            [key, generation, result, reference]);
        // the answer to COMMIT may be lost, and all of this be said again
        await client.query('INSERT INTO refund (key, amount, reference) VALUES ($1, $2, $3)' +
            ' ON CONFLICT DO NOTHING', [key, amount, reference]);
    });
}
// doc: end

// doc: error
async function tryComplete(client, key, generation, result, reference, amount) {
    try {
        await complete(client, key, generation, result, reference, amount);
    } catch (error) {
        if (error.code !== 'ID002') throw error;
        return 'replaced';                  // by a newer owner; the row of refund is rolled back
    }
    return 'done';
}
// doc: end

async function reject(client, key, generation, error) {
    await client.query('SELECT idem_reject($1, $2, $3)', [key, generation, error]);
}

// doc: unknown
async function markUnknown(client, key, generation, detail, retryAfter) {
    await client.query('SELECT idem_mark_unknown($1, $2, $3, $4)',
        [key, generation, detail, retryAfter]);     // '10 minutes'
}
// doc: end

async function status(client, key) {
    const { rows } = await client.query(
        'SELECT state, generation, result, error, channel_ref FROM idem_status($1)', [key]);
    return rows[0];
}

// doc: once
async function once(client, key, params, amount) {
    return transaction(client, async () => {
        const { rows } = await client.query('SELECT idem_once($1, $2) AS first', [key, params]);
        if (rows[0].first) {
            await client.query('INSERT INTO credit (key, amount) VALUES ($1, $2)', [key, amount]);
        }
        return rows[0].first;
    });
}
// doc: end

// doc: trap
async function onceTrap(client, key, params, amount) {
    const { rows } = await client.query('SELECT idem_once($1, $2) AS first', [key, params]);
    // on record as done already, so that a failure from here on loses the credit
    if (rows[0].first) {
        await client.query('INSERT INTO credit (key, amount) VALUES ($1, $2)', [key, amount]);
    }
    return rows[0].first;
}
// doc: end

// doc: consume
async function consume(client, keys, payloads, occurredAt) {
    return transaction(client, async () => {
        const { rows } = await client.query(
            'SELECT position, key, payload, outcome FROM idem_consume_batch($1, $2, $3)',
            [keys, payloads, occurredAt]);
        for (const { key, payload, outcome } of rows) {
            if (outcome === 'first') {
                await client.query('INSERT INTO stock (key, pieces) VALUES ($1, $2)',
                    [key, payload.pieces]);
            }
        }
        return rows.map((row) => row.outcome);
    });
}
// doc: end

/* what must not be: claimed and completed in one transaction */
async function early(client, key, params) {
    await transaction(client, async () => {
        const verdict = await claim(client, key, params);
        await client.query('SELECT idem_complete($1, $2)', [key, verdict.generation]);
    });
}

async function bindings(client, key, params, occurredAt) {
    const outcomes = new Set();
    for (const placeholder of ['$1', '$1::text', '$1::varchar', '$1::idem_key']) {
        for (const document of [params, JSON.stringify(params)]) {
            const { rows } = await client.query(
                `SELECT outcome FROM idem_claim(${placeholder}, $2, $3)`,
                [key, document, occurredAt]);
            outcomes.add(rows[0].outcome);
        }
    }
    return [...outcomes].sort();
}

async function many(client, times, key, params, occurredAt) {
    const outcomes = new Set();
    for (let i = 0; i < times; i++) {
        outcomes.add((await claim(client, key, params, occurredAt)).outcome);
    }
    return [...outcomes].sort();
}

async function prepared(client) {
    const { rows } = await client.query(
        'SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql');
    return rows[0].count;
}

/* what comes of what the page warns of */
async function mistakes(client, key, occurredAt) {
    const outcome = async (id, params, at) => {
        try {
            return (await claim(client, key + id, params, at)).outcome;
        } catch (error) {
            return error.code;
        }
    };
    const exact = '{"amount": 9007199254740993}';
    await outcome('-number', exact, occurredAt);
    await outcome('-date', {}, occurredAt);
    return {
        array: await outcome('-array', ['a', 'b'], occurredAt),
        number: await outcome('-number', JSON.parse(exact), occurredAt),
        date: await outcome('-date', {}, new Date(occurredAt)),
    };
}

/* ---- the protocol ---- */

const text = (word) => word;
const bigint = text;                        // as node-postgres answers it
const number = Number;
const json = JSON.parse;
const time = text;                          // a Date would lose the microseconds
const interval = (word) => `${word} seconds`;
const texts = (word) => word.split(',');
const jsons = (word) => word.split('|').map(JSON.parse);

const COMMANDS = {
    claim: [claim, text, json, time, interval],
    complete: [complete, text, bigint, json, text, bigint],
    try_complete: [tryComplete, text, bigint, json, text, bigint],
    reject: [reject, text, bigint, json],
    mark_unknown: [markUnknown, text, bigint, json, interval],
    status: [status, text],
    once: [once, text, json, bigint],
    once_trap: [onceTrap, text, json, bigint],
    consume: [consume, texts, jsons, texts],
    early: [early, text, json],
    bindings: [bindings, text, json, time],
    many: [many, number, text, json, time],
    prepared: [prepared],
    mistakes: [mistakes, text, time],
};

function shown(value) {
    if (value === null || value === undefined) return '\\N';
    if (value instanceof Date) return String(value.getTime());
    if (Array.isArray(value)) return value.join(',');
    return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

async function answer(client, line) {
    const [name, ...words] = line.split('\t');
    const [command, ...kinds] = COMMANDS[name];
    const given = words.map((word, i) => (word === '\\N' ? null : kinds[i](word)));
    try {
        const value = await command(client, ...given);
        const isRow = value !== null && typeof value === 'object' && !Array.isArray(value);
        return isRow ? value : { answer: value === undefined ? 'done' : value };
    } catch (error) {
        return { sqlstate: error.code, class: error.constructor.name };
    }
}

async function main() {
    const client = await connect();
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const fields = Object.entries(await answer(client, line));
        console.log(fields.map(([field, value]) => `${field}=${shown(value)}`).join('\t'));
    }
    await client.end();
}

main();
