// Publishes an order and consumes it with RocketMQ's own Go client.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var done = make(chan bool, 1)

func main() {
	address := "127.0.0.1:8081"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	where := &rmq.Config{Endpoint: address, ConsumerGroup: "billing", Credentials: &credentials.SessionCredentials{}}
	consumer, err := rmq.NewPushConsumer(where,
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{"orders": rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: bill}))
	check(err)
	check(consumer.Start())
	defer consumer.GracefulStop()
	producer, err := rmq.NewProducer(where, rmq.WithTopics("orders"))
	check(err)
	check(producer.Start())
	defer producer.GracefulStop()
	order := &rmq.Message{Topic: "orders", Body: []byte(`{"order": 1}`)}
	order.SetTag("book")
	sent, err := producer.Send(context.Background(), order)
	check(err)
	fmt.Println("sent", sent[0].MessageID)
	select {
	case <-done:
	case <-time.After(30 * time.Second):
	}
}

// bill fails once, so that the message comes again.
func bill(message *rmq.MessageView) rmq.ConsumerResult {
	fmt.Printf("attempt %d: %s\n", message.GetDeliveryAttempt(), message.GetBody())
	if message.GetDeliveryAttempt() == 1 {
		return rmq.FAILURE
	}
	done <- true
	return rmq.SUCCESS
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
