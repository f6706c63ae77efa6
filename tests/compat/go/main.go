// A judge: RocketMQ's client for Go sends, and receives, with an account.
//
// Usage: judge NAMESERVER TOPIC GROUP ACCESS_KEY SECRET_KEY COUNT. A line for each send ("sent", or "refused" with the
// error) and for each message that is received ("got" with its body); it ends when all have come, or after 30 s.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func must(err error) {
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	names, topic, group := []string{os.Args[1]}, os.Args[2], os.Args[3]
	credentials := primitive.Credentials{AccessKey: os.Args[4], SecretKey: os.Args[5]}
	count, err := strconv.Atoi(os.Args[6])
	must(err)

	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver(names)),
		producer.WithGroupName(group),
		producer.WithCredentials(credentials),
		producer.WithRetry(0),
	)
	must(err)
	must(sender.Start())
	sent := 0
	for number := 0; number < count; number++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("from Go %d", number)))
		if _, err := sender.SendSync(context.Background(), message); err != nil {
			fmt.Println("refused", err)
		} else {
			fmt.Println("sent")
			sent++
		}
	}
	if sent > 0 {
		receive(names, topic, group, credentials, sent)
	}
	must(sender.Shutdown())
}

func receive(names []string, topic, group string, credentials primitive.Credentials, count int) {
	bodies := make(chan string, count)
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver(names)),
		consumer.WithGroupName(group),
		consumer.WithCredentials(credentials),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must(err)
	must(receiver.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				bodies <- string(message.Body)
			}
			return consumer.ConsumeSuccess, nil
		}))
	must(receiver.Start())
	over := time.After(30 * time.Second)
	for ; count > 0; count-- {
		select {
		case body := <-bodies:
			fmt.Println("got", body)
		case <-over:
			count = 0
		}
	}
	must(receiver.Shutdown())
}
