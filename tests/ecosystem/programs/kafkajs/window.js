// Reads a topic until it is told to stop: ADDRESS TOPIC. Writes "PARTITION OFFSET" for each
// message, "end PARTITION" behind the last one, and each second "fetches NUMBER".
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const [address, topic] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [address], logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: "by-kafkajs", maxWaitTimeInMs: 500 });

async function main() {
  let fetches = 0;
  consumer.on(consumer.events.FETCH, () => fetches++);
  setInterval(() => console.log(`fetches ${fetches}`), 1000);
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    eachBatch: async ({ batch, resolveOffset }) => {
      for (const message of batch.messages) {
        console.log(`${batch.partition} ${message.offset}`);
        resolveOffset(message.offset);
      }
      if (batch.offsetLag() === "0") console.log(`end ${batch.partition}`);
    },
  });
}

main();
