'use strict';
// What the official Node.js client does with a gateway: `client.js ADDRESS PREFIX` prints JSON lines
// of what it saw. Topics and groups begin with the prefix and exist already. It ends with its input,
// so that no acknowledgement is cut off.

const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [, , address, prefix] = process.argv;
const quiet = { info() {}, debug() {}, warn() {}, error: console.error };
const options = { endpoints: address, namespace: '', logger: quiet, sslEnabled: process.env.TLS === 'yes' };

const say = (event, fields) => console.log(JSON.stringify({ event, at: Date.now() / 1000, ...fields }));
const body = message => message.body.toString();

const saw = (by, message) => say('seen', {
  by,
  id: message.messageId,
  body: body(message),
  tag: message.tag ?? '',
  keys: message.keys,
  properties: Object.fromEntries(message.properties),
  attempt: message.deliveryAttempt,
  message_group: message.messageGroup ?? '',
  due: message.deliveryTimestamp ? message.deliveryTimestamp / 1000 : undefined,
});

async function push(group, topic, tags, fails) {
  const consumer = new PushConsumer({
    ...options,
    consumerGroup: prefix + group,
    subscriptions: new Map([[prefix + topic, tags]]),
    messageListener: {
      consume(message) {
        saw(group, message);
        return fails(message) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
}

async function simple(group, topic) {
  const consumer = new SimpleConsumer({
    ...options,
    consumerGroup: prefix + group,
    subscriptions: new Map([[prefix + topic, '*']]),
    awaitDuration: 15_000,
  });
  await consumer.startup();
  return consumer;
}

async function receive(consumer, group) {
  for (;;) {
    for (const message of await consumer.receive(1, 20_000)) {
      saw(group, message);
      return message;
    }
  }
}

async function take(group, topic, count) {
  const consumer = await simple(group, topic);
  for (let taken = 0; taken < count; taken++) {
    await consumer.ack(await receive(consumer, group));
  }
}

async function change() {
  const consumer = await simple('changing', 'plain');
  await consumer.changeInvisibleDuration(await receive(consumer, 'changing'), 1000);
  await consumer.ack(await receive(consumer, 'changing'));
}

async function produce() {
  const checker = {
    async check(message) {
      say('checked', { id: message.messageId, body: body(message) });
      return TransactionResolution.COMMIT;
    },
  };
  const topics = ['orders', 'entries', 'later', 'payments', 'plain'].map(topic => prefix + topic);
  const producer = new Producer({ ...options, topics, checker });
  await producer.startup();
  const message = (topic, text, more) => ({ topic: prefix + topic, body: Buffer.from(text), ...more });
  const send = async (topic, text, more = {}) => {
    const receipt = await producer.send(message(topic, text, more));
    say('sent', { id: receipt.messageId, body: text });
    return receipt;
  };
  const begin = async text => {
    const transaction = producer.beginTransaction();
    const half = await producer.send(message('payments', text), transaction);
    say('sent', { id: half.messageId, body: text });
    return transaction;
  };
  await begin('left');
  await (await begin('committed')).commit();
  await (await begin('rolled back')).rollback();
  await send('later', 'soon', { delay: 1500 });
  const never = await send('later', 'never', { delay: 3000 });
  const recalled = await producer.recallMessage(prefix + 'later', never.recallHandle);
  say('recalled', { id: recalled.messageId });
  for (const text of ['1', '2', '3', 'other']) {
    await send('entries', text, { messageGroup: text === 'other' ? 'account-2' : 'account-1' });
  }
  await send('orders', 'good', { tag: 'book', keys: ['k1', 'k2'], properties: new Map([['colour', 'red']]) });
  await send('orders', 'flaky', { tag: 'film' });
  await send('orders', 'bad', { tag: 'book' });
  await send('orders', 'filtered', { tag: 'song' });
  await send('plain', 'changed');
}

async function main() {
  await push('billing', 'orders', 'book || film', message =>
    body(message) === 'bad' || (body(message) === 'flaky' && message.deliveryAttempt === 1));
  await push('ledger', 'entries', '*', message =>
    body(message) === '2' || (body(message) === '1' && message.deliveryAttempt < 3));
  await Promise.all([take('late', 'later', 1), take('paid', 'payments', 2), change(), produce()]);
}

process.stdin.on('end', () => process.exit(0)).resume();
main().catch(error => {
  console.error(error);
  process.exit(1);
});
