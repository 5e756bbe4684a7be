// kafkajs, told by lines of JSON what to do: {"id", "command", ...}; answers {"id", "result"} or
// {"id", "error"}. Bytes are in base64. Where its packages are, NODE_PATH says.
"use strict";

const readline = require("node:readline");
const {
  CompressionCodecs,
  CompressionTypes,
  ConfigResourceTypes,
  Kafka,
  logLevel,
} = require("kafkajs");
const snappy = require("kafkajs-snappy");
const lz4 = require("lz4-napi");

// kafkajs itself has gzip only.
CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
};
const TOPIC = ConfigResourceTypes.TOPIC;
const MOST_WAITING = 100;
const RETRY = { initialRetryTime: 50, maxRetryTime: 500, retries: 100 };

const kafka = new Kafka({
  clientId: "kafkajs",
  brokers: [process.argv[2]],
  ...JSON.parse(process.env.KAFKAJS_ACCESS),
  logLevel: logLevel.NOTHING,
  retry: RETRY,
});
const admin = kafka.admin();
const members = new Map();
const writers = new Map();

const decoded = (text) => (text === null ? null : Buffer.from(text, "base64"));
const encoded = (buffer) => (buffer === null ? null : buffer.toString("base64"));

function stored(partition, message) {
  const headers = Object.entries(message.headers ?? {}).map(([name, value]) => [
    name,
    encoded(value),
  ]);
  const { offset, timestamp, key, value } = message;
  return {
    partition,
    offset: Number(offset),
    timestamp: Number(timestamp),
    key: encoded(key),
    value: encoded(value),
    headers,
  };
}

// A consumer whose handler waits while nobody takes what has come.
async function join(group, topic, offset) {
  const consumer = kafka.consumer({
    groupId: group,
    heartbeatInterval: 100,
    maxWaitTimeInMs: 100,
    retry: RETRY,
  });
  const member = {
    consumer,
    waiting: [],
    taken: new Map(),
    assigned: [],
    arrived: () => {},
    resume: () => {},
  };
  consumer.on(consumer.events.GROUP_JOIN, (event) => {
    member.assigned = event.payload.memberAssignment[topic] ?? [];
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      member.waiting.push(stored(partition, message));
      member.arrived();
      while (member.waiting.length >= MOST_WAITING) {
        await new Promise((resolve) => (member.resume = resolve));
      }
    },
  });
  if (offset) consumer.seek({ topic, partition: 0, offset: String(offset) });
  return member;
}

const commands = {
  async produce({ topic, codec, idempotent, partition, messages }) {
    const producer = kafka.producer({ idempotent, retry: RETRY });
    await producer.connect();
    try {
      await producer.send({
        topic,
        acks: -1,
        compression: CODECS[codec],
        messages: messages.map(({ key, value, timestamp, headers }) => ({
          partition,
          key: decoded(key),
          value: decoded(value),
          timestamp: timestamp === -1 ? undefined : String(timestamp),
          headers: Object.fromEntries(headers.map(([name, bytes]) => [name, decoded(bytes)])),
        })),
      });
    } finally {
      await producer.disconnect();
    }
  },

  async join({ name, group, topic, offset }) {
    members.set(name, await join(group, topic, offset));
  },

  async poll({ name, wait_ms }) {
    const member = members.get(name);
    if (member.waiting.length === 0) {
      await new Promise((resolve) => {
        member.arrived = resolve;
        setTimeout(resolve, wait_ms);
      });
    }
    const polled = member.waiting.splice(0);
    for (const { partition, offset } of polled) member.taken.set(partition, offset);
    member.resume();
    return polled;
  },

  async assigned({ name }) {
    return members.get(name).assigned;
  },

  async commit({ name, topic }) {
    const { consumer, taken } = members.get(name);
    const places = [...taken].map(([partition, offset]) => ({
      topic,
      partition,
      offset: String(offset + 1),
    }));
    await consumer.commitOffsets(places);
  },

  async leave({ name }) {
    const member = members.get(name);
    members.delete(name);
    member.waiting = [];
    member.resume();
    await member.consumer.disconnect();
  },

  async open_writer({ name }) {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: RETRY });
    await producer.connect();
    writers.set(name, { producer, last: Promise.resolve() });
  },

  // One after the other, so that what is sent again stays in its place.
  async write({ name, topic, value }) {
    const writer = writers.get(name);
    const messages = [{ partition: 0, value: decoded(value) }];
    writer.last = writer.last.then(() => writer.producer.send({ topic, acks: -1, messages }));
    writer.last.catch(() => {});
  },

  async finish({ name }) {
    await writers.get(name).last;
  },

  async close_writer({ name }) {
    await writers.get(name).producer.disconnect();
  },

  async offsets_for_times({ topic, times }) {
    const [{ high }] = await admin.fetchTopicOffsets(topic);
    const found = [];
    for (const time of times) {
      const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, time);
      found.push(offset === high ? null : Number(offset));
    }
    return found;
  },

  async create_topic({ topic, partitions, settings }) {
    const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }));
    const created = await admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }],
    });
    if (!created) throw { type: "TOPIC_ALREADY_EXISTS" };
  },

  async partitions({ topic }) {
    if (!(await admin.listTopics()).includes(topic)) return 0;
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    return topics[0].partitions.length;
  },

  async settings({ topic }) {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: TOPIC, name: topic }],
    });
    return Object.fromEntries(
      resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue]),
    );
  },

  async alter_topic({ topic, settings }) {
    const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }));
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: TOPIC, name: topic, configEntries }],
    });
  },

  async delete_topic({ topic }) {
    await admin.deleteTopics({ topics: [topic] });
  },
};

function nameOf(error) {
  const inner = error.errors ? error.errors[0] : error;
  return inner.type ?? inner.cause?.type ?? String(inner.stack);
}

async function main() {
  await admin.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { id, command, ...rest } = JSON.parse(line);
    let answer;
    try {
      answer = { id, result: (await commands[command](rest)) ?? null };
    } catch (error) {
      answer = { id, error: nameOf(error) };
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
