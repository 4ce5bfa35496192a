'use strict';

// A program for tests: takes one JSON object a line, does it with the Node client, and answers with lines {"row": ...}
// and at last {"done": number of rows} or {"error": text}.

const crypto = require('crypto');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const BODY_TOLD_MAX = 4096;
const started = new Map();
const inboxes = new Map();
const complaints = new Map();

// The library's own logs would go to stdout, where the answers go.
const logger = { info() {}, debug() {}, warn() {}, error: error => console.error(error) };
// Needed by the library, and used only to look up name servers by HTTP.
const httpclient = { request: () => Promise.reject(new Error('this program does not ask the web')) };

function optionsOf(request) {
  return {
    nameSrv: request.nameServer,
    clientIP: '127.0.0.1',
    // One client of its own for each: the library shares them by this name.
    instanceName: request.name,
    namespace: request.namespace || '',
    pollNameServerInteval: 1000,
    rebalanceInterval: 1000,
    persistConsumerOffsetInterval: 1000,
    httpclient,
    logger,
  };
}

function listen(name, client) {
  const errors = [];
  complaints.set(name, errors);
  client.on('error', error => errors.push(`${error.name}: ${error.message}`));
}

function find(table, name) {
  if (!table.has(name)) {
    throw new Error(`nothing is called ${name}`);
  }
  return table.get(name);
}

// --- producing

async function startProducer(request) {
  const options = { ...optionsOf(request), producerGroup: request.group };
  if (request.template) {
    options.createTopicKey = request.template;
  }
  const producer = new Producer(options);
  listen(request.name, producer);
  await producer.ready();
  started.set(request.name, producer);
  return [];
}

function build(wanted) {
  const body = wanted.base64 ? Buffer.from(wanted.base64, 'base64') : wanted.body;
  const message = new Message(wanted.topic, wanted.tags || '', body);
  if (!wanted.tags) {
    delete message.properties.TAGS;
  }
  if (wanted.keys) {
    message.keys = wanted.keys;
  }
  if (wanted.delayLevel) {
    message.delayTimeLevel = wanted.delayLevel;
  }
  if (wanted.shardingKey) {
    message.shardingKey = wanted.shardingKey;
  }
  message.flag = wanted.flag || 0;
  Object.assign(message.properties, wanted.properties);
  return message;
}

async function send(request) {
  const producer = find(started, request.name);
  const rows = [];
  const sendOne = async wanted => {
    const result = await producer.send(build(wanted));
    return {
      status: result.sendStatus,
      msgId: result.msgId,
      broker: result.messageQueue.brokerName,
      queue: Number(result.messageQueue.queueId),
      offset: result.queueOffset,
    };
  };
  if (request.mode === 'together') {
    return Promise.all(request.messages.map(sendOne));
  }
  for (const wanted of request.messages) {
    rows.push(await sendOne(wanted));
  }
  return rows;
}

// Makes a topic and waits until the name server tells clients of it.
async function createTopic(request) {
  const client = find(started, request.name)._mqClient;
  await client.createTopic(request.broker, 'TBW102', {
    topicName: request.topic,
    readQueueNums: request.queues,
    writeQueueNums: request.queues,
    perm: 6,
    topicFilterType: 'SINGLE_TAG',
    topicSysFlag: 0,
    order: false,
  }, 5000);
  await until(30, async () => {
    try {
      return Boolean(await client.getTopicRouteInfoFromNameServer(request.topic, 3000));
    } catch (error) {
      return false;
    }
  }, () => `no route to ${request.topic}`);
  return [];
}

// --- consuming

function describe(message) {
  const body = message.body || Buffer.alloc(0);
  return {
    topic: message.topic,
    queue: message.queueId,
    offset: message.queueOffset,
    body: body.length <= BODY_TOLD_MAX ? body.toString() : '',
    length: body.length,
    sha256: crypto.createHash('sha256').update(body).digest('hex'),
    flag: message.flag,
    sysFlag: message.sysFlag,
    tags: message.tags || '',
    keys: message.keys || '',
    properties: message.properties,
    offsetMsgId: message.msgId,
    reconsumeTimes: message.reconsumeTimes,
    bornTimestamp: message.bornTimestamp,
    storeTimestamp: message.storeTimestamp,
    bornHost: message.bornHost,
    storeHost: message.storeHost,
  };
}

async function startConsumer(request) {
  const options = {
    ...optionsOf(request),
    consumerGroup: request.group,
    isBroadcast: Boolean(request.broadcast),
    consumeFromWhere: request.from === 'last' ? 'CONSUME_FROM_LAST_OFFSET' : 'CONSUME_FROM_FIRST_OFFSET',
  };
  const consumer = new Consumer(options);
  listen(request.name, consumer);
  const inbox = [];
  inboxes.set(request.name, inbox);
  for (const topic of request.topics) {
    consumer.subscribe(topic, request.expression || '*', async message => {
      inbox.push(describe(message));
      if (message.reconsumeTimes < (request.fail || 0)) {
        if (request.throws) {
          throw new Error('the test wants this message to fail');
        }
        return Consumer.ACTION_RETRY;
      }
    });
  }
  await consumer.ready();
  started.set(request.name, consumer);
  return [];
}

async function until(seconds, ask, explain) {
  const deadline = Date.now() + seconds * 1000;
  while (!await ask()) {
    if (Date.now() > deadline) {
      throw new Error(`after ${seconds} s: ${explain()}`);
    }
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

async function awaitMessages(request) {
  const inbox = find(inboxes, request.name);
  await until(request.seconds, () => inbox.length >= request.count, () =>
    `${inbox.length} messages instead of ${request.count}: ${JSON.stringify(inbox)} ${complaints.get(request.name)}`);
  return inbox;
}

// Waits until some consumers have all of some bodies, and tells who has which.
async function awaitBodies(request) {
  const wanted = new Set(request.bodies);
  let rows = [];
  await until(request.seconds, () => {
    rows = request.names.flatMap(name =>
      find(inboxes, name).filter(({ body }) => wanted.has(body)).map(({ body }) => ({ name, body })));
    return new Set(rows.map(({ body }) => body)).size === wanted.size;
  }, () => `${JSON.stringify(rows)} of ${JSON.stringify(request.bodies)}`);
  return rows;
}

async function awaitComplaint(request) {
  const errors = find(complaints, request.name);
  const heard = () => errors.some(error => error.includes(request.containing));
  await until(request.seconds, heard, () => `heard only ${errors}`);
  return errors;
}

async function stop(request) {
  const client = find(started, request.name);
  started.delete(request.name);
  await client.close();
  return [];
}

// --- the loop

const actions = {
  startProducer,
  send,
  createTopic,
  startConsumer,
  await: awaitMessages,
  awaitBodies,
  list: async request => find(inboxes, request.name),
  awaitComplaint,
  stop,
};

async function answer(line) {
  try {
    const request = JSON.parse(line);
    if (!actions[request.do]) {
      throw new Error(`unknown action ${request.do}`);
    }
    const rows = await actions[request.do](request);
    return [...rows.map(row => ({ row })), { done: rows.length }];
  } catch (error) {
    return [{ error: `${error.name}: ${error.message}` }];
  }
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    for (const said of await answer(line)) {
      process.stdout.write(JSON.stringify(said) + '\n');
    }
  }
  process.exit(0);
}

main();
