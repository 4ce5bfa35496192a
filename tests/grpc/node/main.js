'use strict';

// A program for tests: takes one JSON object a line, does it with the Node client, and answers with a line that has the
// same id, and rows or an error. Lines are answered as they get done, not in order.

const readline = require('readline');
const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const TLS = process.argv.includes('tls');
const TIMEOUT_MS = 10000;
const started = new Map();
const inboxes = new Map();
const received = new Map();
let keys = 0;

// The library's own logs would go to a file in the home directory.
const say = (...words) => console.error(...words);
const logger = { info() {}, debug() {}, warn: say, error: say };

function configure(request) {
  const options = { endpoints: request.endpoints, namespace: '', sslEnabled: TLS, requestTimeout: TIMEOUT_MS, logger };
  if (request.accessKey) {
    options.sessionCredentials = { accessKey: request.accessKey, accessSecret: request.secretKey };
  }
  return options;
}

function readSubscriptions(request) {
  return new Map(Object.entries(request.subscriptions).map(([topic, told]) => [
    topic, new FilterExpression(told.expression, told.type === 'SQL' ? FilterType.SQL : FilterType.TAG),
  ]));
}

function describe(view) {
  return {
    topic: view.topic,
    body: view.body.toString(),
    tag: view.tag || null,
    keys: [...view.keys].sort(),
    properties: Object.fromEntries(view.properties),
    messageId: view.messageId,
    group: view.messageGroup || null,
    attempt: view.deliveryAttempt,
    deliverAt: view.deliveryTimestamp ? view.deliveryTimestamp.getTime() : null,
    at: Date.now(),
  };
}

function openInbox(name) {
  if (!inboxes.has(name)) {
    inboxes.set(name, []);
  }
  return inboxes.get(name);
}

async function start(name, client) {
  await client.startup();
  started.set(name, client);
  return [];
}

const actions = {
  // --- producing

  producer(name, request) {
    const inbox = openInbox(name);
    const checker = {
      async check(view) {
        inbox.push(describe(view));
        const said = { commit: TransactionResolution.COMMIT, rollback: TransactionResolution.ROLLBACK };
        return said[request.check] || TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
      },
    };
    return start(name, new Producer({ ...configure(request), topics: request.topics, checker }));
  },

  async send(name, request) {
    const producer = started.get(name);
    const rows = [];
    for (const told of request.messages) {
      const message = {
        topic: told.topic,
        body: Buffer.from(told.body),
        tag: told.tag,
        keys: told.keys,
        messageGroup: told.group,
        properties: new Map(Object.entries(told.properties || {})),
      };
      if (told.deliverAt) {
        message.deliveryTimestamp = new Date(told.deliverAt);
      }
      let receipt;
      if (request.transaction) {
        const transaction = producer.beginTransaction();
        receipt = await producer.send(message, transaction);
        if (request.transaction !== 'leave') {
          await transaction[request.transaction]();
        }
      } else {
        receipt = await producer.send(message);
      }
      rows.push({ messageId: receipt.messageId, recallHandle: receipt.recallHandle });
    }
    return rows;
  },

  async recall(name, request) {
    return [(await started.get(name).recallMessage(request.topic, request.handle)).messageId];
  },

  // --- consuming

  push(name, request) {
    const inbox = openInbox(name);
    const failures = new Map(Object.entries(request.fail || {}));
    const messageListener = {
      async consume(view) {
        const row = describe(view);
        inbox.push(row);
        const left = failures.get(row.body) || 0;
        failures.set(row.body, left - 1);
        await new Promise(resolve => setTimeout(resolve, request.busyMs || 0));
        return left > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    };
    return start(name, new PushConsumer({
      ...configure(request), consumerGroup: request.group, subscriptions: readSubscriptions(request), messageListener,
    }));
  },

  simple(name, request) {
    return start(name, new SimpleConsumer({
      ...configure(request),
      consumerGroup: request.group,
      subscriptions: readSubscriptions(request),
      awaitDuration: request.awaitMs,
    }));
  },

  async receive(name, request) {
    const views = await started.get(name).receive(request.max, request.invisibleMs);
    return views.map(view => {
      const key = `m${++keys}`;
      received.set(key, view);
      return { ...describe(view), key };
    });
  },

  async ack(name, request) {
    await started.get(name).ack(received.get(request.key));
    return [];
  },

  async change(name, request) {
    await started.get(name).changeInvisibleDuration(received.get(request.key), request.invisibleMs);
    return [];
  },

  async list(name) {
    return inboxes.get(name);
  },

  async stop(name) {
    const client = started.get(name);
    started.delete(name);
    await client.shutdown();
    return [];
  },
};

async function answer(request) {
  const said = { id: request.id };
  try {
    said.rows = await actions[request.do](request.name, request);
  } catch (error) {
    said.error = `${error.name}: ${error.message} ${error.code || ''}`;
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}

process.on('unhandledRejection', error => say('unhandled', error));
readline.createInterface({ input: process.stdin })
  .on('line', line => answer(JSON.parse(line)))
  .on('close', () => process.exit(0));
