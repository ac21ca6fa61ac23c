package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// bill consumes orders until it is killed: `client ADDRESS TOPIC GROUP FILE`. Each attempt fails or
// not as the body says, and has two lines in the file, as tests/model/checker reads them.
func bill(topic, group, file string) {
	table := must2(os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600))
	note := func(event string, m *rmq.MessageView, more fields) {
		handle := strings.Split(m.GetReceiptHandle(), "/")
		line := fields{
			"e": event, "topic": topic, "group": group, "id": m.GetMessageId(), "at_ns": time.Now().UnixNano(),
			"lease_no": must2(strconv.Atoi(handle[3])), "proc": "go-" + strconv.Itoa(os.Getpid()),
		}
		for name, value := range more {
			line[name] = value
		}
		must2(table.Write(append(must2(json.Marshal(line)), '\n')))
	}
	push(group, topic, "*", func(m *rmq.MessageView) bool {
		note("start", m, fields{"attempt": m.GetDeliveryAttempt()})
		var order struct{ Fails int32 }
		must(json.Unmarshal(m.GetBody(), &order))
		failed := m.GetDeliveryAttempt() <= order.Fails
		outcome := "success"
		if failed {
			outcome = "failure"
		}
		note("end", m, fields{"outcome": outcome, "chosen": false})
		return failed
	})
	select {}
}
