'use strict';
// Publishes an order and consumes it with RocketMQ's own Node.js client.

const { setTimeout } = require('node:timers/promises');
const { ConsumeResult, Producer, PushConsumer } = require('rocketmq-client-nodejs');

const where = { endpoints: process.argv[2] ?? '127.0.0.1:8081', namespace: '' };

async function main() {
  let billed;
  const done = new Promise(resolve => { billed = resolve; });

  // Fails once, so that the message comes again.
  function consume(message) {
    console.log(`attempt ${message.deliveryAttempt}: ${message.body}`);
    if (message.deliveryAttempt === 1) {
      return ConsumeResult.FAILURE;
    }
    billed();
    return ConsumeResult.SUCCESS;
  }

  const consumer = new PushConsumer({
    ...where,
    consumerGroup: 'billing',
    subscriptions: new Map([['orders', '*']]),
    messageListener: { consume },
  });
  await consumer.startup();
  const producer = new Producer({ ...where, topic: 'orders' });
  await producer.startup();
  const order = { topic: 'orders', tag: 'book', body: Buffer.from('{"order": 1}') };
  console.log('sent', (await producer.send(order)).messageId);
  await Promise.race([done, setTimeout(30_000)]);
  await producer.shutdown();
  await consumer.shutdown();
  process.exit();
}

main();
