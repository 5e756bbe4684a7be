// Counts words in a table of goka until it is told to stop: ADDRESS FOLDER.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/lovoo/goka"
	"github.com/lovoo/goka/codec"
	"github.com/lovoo/goka/storage"
)

func main() {
	address, folder := []string{os.Args[1]}, os.Args[2]
	// One broker has one copy; goka asks for two unless it is told so.
	topics := goka.NewTopicManagerConfig()
	topics.Table.Replication = 1
	count := func(about goka.Context, word any) {
		seen := int64(1)
		if before := about.Value(); before != nil {
			seen += before.(int64)
		}
		about.SetValue(seen)
		about.Emit("counts", word.(string), fmt.Sprint(seen))
	}
	graph := goka.DefineGroup("counting",
		goka.Input("words", new(codec.String), count),
		goka.Output("counts", new(codec.String)),
		goka.Persist(new(codec.Int64)),
	)
	processor, err := goka.NewProcessor(address, graph,
		goka.WithTopicManagerBuilder(goka.TopicManagerBuilderWithTopicManagerConfig(topics)),
		goka.WithStorageBuilder(storage.DefaultBuilder(folder)),
	)
	if err != nil {
		log.Fatal(err)
	}
	until, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := processor.Run(until); err != nil {
		log.Fatal(err)
	}
}
