// BullMQ: the same workload and counting as peer.py.
import { renameSync, writeFileSync } from 'node:fs';
import { Queue, Worker } from 'bullmq';

const connection = { host: '127.0.0.1', port: Number(process.env.BENCH_PORT), maxRetriesPerRequest: null };
const expected = Number(process.env.BENCH_EXPECTED || 0);
const out = process.env.BENCH_OUT;
const fails = Boolean(process.env.BENCH_FAILS);
const limit = Number(process.env.BENCH_LIMIT_S || 0) * 1000;
const nudge = -1;
const chunk = 500;
const options = { removeOnComplete: true, removeOnFail: true, attempts: 3 };
const body = (n) => ({ n, carrier: 'UA', origin: 'EWR', note: 'x'.repeat(60) });
const seconds = () => Number(process.hrtime.bigint()) / 1e9; // the monotonic clock, as Python's
const [action, count] = [process.argv[2], Number(process.argv[3] || 0)];

async function publish() {
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  const sent = [];
  let started = seconds();
  if (action === 'callers') { // each publishes again when its last message is stored
    const callers = Number(process.argv[4]);
    await queue.add('work', body(0), options);
    started = seconds();
    await Promise.all(Array.from({ length: callers }, async () => {
      for (let n = 0; n < Math.max(1, Math.floor(count / callers)); n += 1) {
        const at = seconds();
        await queue.add('work', body(n), options);
        sent.push(seconds() - at);
      }
    }));
  } else if (action === 'bulk') {
    for (let at = 0; at < count; at += chunk) {
      const jobs = [];
      for (let n = at; n < Math.min(count, at + chunk); n += 1) jobs.push({ name: 'work', data: body(n), opts: options });
      await queue.addBulk(jobs);
    }
  } else {
    let due = seconds();
    for (let n = 0; n < count; n += 1) {
      if (action === 'slow') {
        due += 0.005;
        await new Promise((resume) => setTimeout(resume, Math.max(0, (due - seconds()) * 1000)));
      }
      sent.push(seconds());
      await queue.add('work', body(action === 'nudge' ? nudge : n), options);
    }
  }
  console.log(JSON.stringify({ took: seconds() - started, sent }));
  await queue.close();
}

function cpu() {
  const used = process.cpuUsage();
  return (used.user + used.system) / 1e6;
}

async function work() {
  const numbers = [];
  const starts = [];
  const failed = new Set();
  const done = new Set();
  let begun = 0;
  let ended = false;
  const end = () => { // all is done, or time is over
    if (ended) return;
    ended = true;
    const workerUs = ((cpu() - begun) / Math.max(1, expected - 1)) * 1e6;
    setTimeout(() => {
      const report = { numbers, starts, done: done.size, worker_us: workerUs };
      writeFileSync(`${out}.part`, JSON.stringify(report));
      renameSync(`${out}.part`, out);
    }, 300);
  };
  const handle = async (job) => {
    const number = job.data.n;
    if (number === nudge) return;
    starts.push(seconds());
    numbers.push(number);
    if (process.env.BENCH_HANGS) {
      writeFileSync(out, '');
      await new Promise(() => {});
    }
    if (!begun) {
      begun = cpu();
      if (limit) setTimeout(end, limit);
    }
    if (fails && !failed.has(number)) {
      failed.add(number);
      throw new Error('the first attempt fails');
    }
    done.add(number);
    if (done.size >= expected) end();
  };
  new Worker('bench', handle, { connection, concurrency: 100, lockDuration: 10000, stalledInterval: 10000 });
}

await (action === 'work' ? work() : publish());
