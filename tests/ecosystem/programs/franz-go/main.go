// Reads a topic until it is told to stop: ADDRESS TOPIC. Writes "PARTITION OFFSET" for each
// message, and "end PARTITION" behind the last one.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ConsumerGroup("by-franz-go"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		log.Fatal(err)
	}
	for {
		fetches := client.PollFetches(context.Background())
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Fatal(topic, " ", partition, ": ", err)
		})
		fetches.EachPartition(func(read kgo.FetchTopicPartition) {
			read.EachRecord(func(record *kgo.Record) {
				fmt.Println(record.Partition, record.Offset)
				if record.Offset+1 == read.HighWatermark {
					fmt.Println("end", record.Partition)
				}
			})
		})
	}
}
