// What the official Go client does with a gateway: `client ADDRESS PREFIX` prints JSON lines of what
// it saw. Topics and groups begin with the prefix and exist already. It ends with its input, so that
// no acknowledgement is cut off.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var (
	address, prefix string
	printing        sync.Mutex
)

type fields map[string]any

func say(event string, more fields) {
	line := fields{"event": event, "at": float64(time.Now().UnixMilli()) / 1000}
	for name, value := range more {
		line[name] = value
	}
	text, err := json.Marshal(line)
	must(err)
	printing.Lock()
	defer printing.Unlock()
	must2(os.Stdout.Write(append(text, '\n')))
}

func saw(by string, m *rmq.MessageView) {
	line := fields{
		"by": by, "id": m.GetMessageId(), "body": string(m.GetBody()), "tag": text(m.GetTag()),
		"keys": m.GetKeys(), "properties": m.GetProperties(), "attempt": m.GetDeliveryAttempt(),
		"message_group": text(m.GetMessageGroup()), "handle": m.GetReceiptHandle(),
	}
	if due := m.GetDeliveryTimestamp(); due != nil {
		line["due"] = float64(due.UnixMilli()) / 1000
	}
	say("seen", line)
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must2[T any](value T, err error) T {
	must(err)
	return value
}

func config(group string) *rmq.Config {
	return &rmq.Config{Endpoint: address, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func subscribed(topic, tags string) map[string]*rmq.FilterExpression {
	return map[string]*rmq.FilterExpression{prefix + topic: rmq.NewFilterExpression(tags)}
}

func push(group, topic, tags string, fails func(*rmq.MessageView) bool) {
	listener := &rmq.FuncMessageListener{Consume: func(m *rmq.MessageView) rmq.ConsumerResult {
		if fails(m) {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}}
	consumer := must2(rmq.NewPushConsumer(config(prefix+group),
		rmq.WithPushSubscriptionExpressions(subscribed(topic, tags)), rmq.WithPushMessageListener(listener)))
	must(consumer.Start())
}

func simple(group, topic string) func(invisible time.Duration) (rmq.SimpleConsumer, *rmq.MessageView) {
	consumer := must2(rmq.NewSimpleConsumer(config(prefix+group), rmq.WithSimpleAwaitDuration(15*time.Second),
		rmq.WithSimpleSubscriptionExpressions(subscribed(topic, "*"))))
	must(consumer.Start())
	return func(invisible time.Duration) (rmq.SimpleConsumer, *rmq.MessageView) {
		for {
			found, err := consumer.Receive(context.Background(), 1, invisible)
			if err == nil && len(found) == 1 {
				saw(group, found[0])
				return consumer, found[0]
			}
		}
	}
}

func take(group, topic string, count int) {
	receive := simple(group, topic)
	for range count {
		consumer, message := receive(20 * time.Second)
		must(consumer.Ack(context.Background(), message))
	}
}

func change() {
	receive := simple("changing", "plain")
	consumer, first := receive(20 * time.Second)
	before := first.GetReceiptHandle()
	must(consumer.ChangeInvisibleDuration(first, time.Second))
	say("changed", fields{"renewed": first.GetReceiptHandle() != before})
	_, second := receive(20 * time.Second)
	must(consumer.Ack(context.Background(), second))
}

func message(topic, body string, set ...func(*rmq.Message)) *rmq.Message {
	made := &rmq.Message{Topic: prefix + topic, Body: []byte(body)}
	for _, one := range set {
		one(made)
	}
	return made
}

func tagged(tag string) func(*rmq.Message) {
	return func(m *rmq.Message) { m.SetTag(tag) }
}

func produce() {
	topics := []string{"orders", "entries", "later", "payments", "plain"}
	for i, topic := range topics {
		topics[i] = prefix + topic
	}
	checker := &rmq.TransactionChecker{Check: func(m *rmq.MessageView) rmq.TransactionResolution {
		say("checked", fields{"id": m.GetMessageId(), "body": string(m.GetBody())})
		return rmq.COMMIT
	}}
	producer := must2(rmq.NewProducer(config(""), rmq.WithTopics(topics...), rmq.WithTransactionChecker(checker)))
	must(producer.Start())
	send := func(m *rmq.Message) *rmq.SendReceipt {
		receipt := must2(producer.Send(context.Background(), m))[0]
		say("sent", fields{"id": receipt.MessageID, "body": string(m.Body)})
		return receipt
	}
	begin := func(body string) rmq.Transaction {
		transaction := producer.BeginTransaction()
		half := must2(producer.SendWithTransaction(context.Background(), message("payments", body), transaction))
		say("sent", fields{"id": half[0].MessageID, "body": body})
		return transaction
	}
	begin("left")
	must(begin("committed").Commit())
	must(begin("rolled back").RollBack())
	delayed := func(wait time.Duration) func(*rmq.Message) {
		return func(m *rmq.Message) { m.SetDelayTimestamp(time.Now().Add(wait)) }
	}
	send(message("later", "soon", delayed(1500*time.Millisecond)))
	never := send(message("later", "never", delayed(3*time.Second)))
	recalled := must2(producer.Recall(context.Background(), prefix+"later", never.RecallHandle))
	say("recalled", fields{"id": recalled})
	for _, body := range strings.Split("1 2 3 other", " ") {
		account := "account-1"
		if body == "other" {
			account = "account-2"
		}
		send(message("entries", body, func(m *rmq.Message) { m.SetMessageGroup(account) }))
	}
	send(message("orders", "good", tagged("book"), func(m *rmq.Message) {
		m.SetKeys("k1", "k2")
		m.AddProperty("colour", "red")
	}))
	send(message("orders", "flaky", tagged("film")))
	send(message("orders", "bad", tagged("book")))
	send(message("orders", "filtered", tagged("song")))
	send(message("plain", "changed"))
}

func main() {
	log.SetFlags(0)
	address = os.Args[1]
	if len(os.Args) > 3 {
		bill(os.Args[2], os.Args[3], os.Args[4])
	}
	prefix = os.Args[2]
	push("billing", "orders", "book || film", func(m *rmq.MessageView) bool {
		saw("billing", m)
		body := string(m.GetBody())
		return body == "bad" || (body == "flaky" && m.GetDeliveryAttempt() == 1)
	})
	push("ledger", "entries", "*", func(m *rmq.MessageView) bool {
		saw("ledger", m)
		body := string(m.GetBody())
		return body == "2" || (body == "1" && m.GetDeliveryAttempt() < 3)
	})
	go take("late", "later", 1)
	go take("paid", "payments", 2)
	go change()
	produce()
	must2(io.ReadAll(os.Stdin))
}
