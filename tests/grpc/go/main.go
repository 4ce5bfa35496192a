// A program for tests: takes one JSON object a line, does it with the Go client for gRPC, and answers with a line that has
// the same id, and rows or an error. Lines are answered as they get done, not in order.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const timeout = 30 * time.Second

type request struct {
	ID            int               `json:"id"`
	Do            string            `json:"do"`
	Name          string            `json:"name"`
	Endpoints     string            `json:"endpoints"`
	AccessKey     string            `json:"accessKey"`
	SecretKey     string            `json:"secretKey"`
	Topics        []string          `json:"topics"`
	Topic         string            `json:"topic"`
	Group         string            `json:"group"`
	Check         string            `json:"check"`
	Transaction   string            `json:"transaction"`
	Messages      []message         `json:"messages"`
	Subscriptions map[string]filter `json:"subscriptions"`
	Fail          map[string]int    `json:"fail"`
	BusyMs        int               `json:"busyMs"`
	AwaitMs       int               `json:"awaitMs"`
	Max           int32             `json:"max"`
	InvisibleMs   int               `json:"invisibleMs"`
	Key           string            `json:"key"`
}

type message struct {
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Group      string            `json:"group"`
	DeliverAt  int64             `json:"deliverAt"`
	Properties map[string]string `json:"properties"`
}

type filter struct {
	Type       string `json:"type"`
	Expression string `json:"expression"`
}

type row map[string]any

// What is started, by name, and what came.
var (
	mutex    sync.Mutex
	started  = map[string]any{}
	inboxes  = map[string][]row{}
	received = map[string]*rmq.MessageView{}
	keys     int
	writing  sync.Mutex
)

func main() {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 64<<20)
	for input.Scan() {
		told := &request{}
		if err := json.Unmarshal(input.Bytes(), told); err != nil {
			panic(err)
		}
		go answer(told)
	}
}

func answer(told *request) {
	said := row{"id": told.ID}
	rows, err := act(told)
	if err != nil {
		said["error"] = err.Error()
	} else {
		said["rows"] = append([]any{}, rows...)
	}
	line, _ := json.Marshal(said)
	writing.Lock()
	defer writing.Unlock()
	fmt.Println(string(line))
}

func act(told *request) (rows []any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	switch told.Do {
	case "producer":
		return nil, startProducer(told)
	case "send":
		return send(find[rmq.Producer](told.Name), told)
	case "push":
		return nil, startPush(told)
	case "simple":
		return nil, startSimple(told)
	case "receive":
		return receive(find[rmq.SimpleConsumer](told.Name), told)
	case "ack":
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return nil, find[rmq.SimpleConsumer](told.Name).Ack(ctx, find[*rmq.MessageView](told.Key))
	case "change":
		view := find[*rmq.MessageView](told.Key)
		return nil, find[rmq.SimpleConsumer](told.Name).ChangeInvisibleDuration(view, milliseconds(told.InvisibleMs))
	case "list":
		mutex.Lock()
		defer mutex.Unlock()
		for _, each := range inboxes[told.Name] {
			rows = append(rows, each)
		}
		return rows, nil
	case "stop":
		return nil, find[interface{ GracefulStop() error }](told.Name).GracefulStop()
	}
	return nil, fmt.Errorf("nobody knows how to do this: %s", told.Do)
}

func find[T any](name string) T {
	mutex.Lock()
	defer mutex.Unlock()
	if view, ok := received[name]; ok {
		return any(view).(T)
	}
	return started[name].(T)
}

func keep(name string, client any) {
	mutex.Lock()
	defer mutex.Unlock()
	started[name] = client
}

func note(name string, view *rmq.MessageView) {
	mutex.Lock()
	defer mutex.Unlock()
	inboxes[name] = append(inboxes[name], describe(view))
}

func milliseconds(count int) time.Duration {
	return time.Duration(count) * time.Millisecond
}

func configure(told *request) *rmq.Config {
	return &rmq.Config{
		Endpoint:      told.Endpoints,
		ConsumerGroup: told.Group,
		Credentials:   &credentials.SessionCredentials{AccessKey: told.AccessKey, AccessSecret: told.SecretKey},
	}
}

func readSubscriptions(told *request) map[string]*rmq.FilterExpression {
	subscriptions := map[string]*rmq.FilterExpression{}
	for topic, each := range told.Subscriptions {
		if each.Type == "SQL" {
			subscriptions[topic] = rmq.NewFilterExpressionWithType(each.Expression, rmq.SQL92)
		} else {
			subscriptions[topic] = rmq.NewFilterExpression(each.Expression)
		}
	}
	return subscriptions
}

func describe(view *rmq.MessageView) row {
	described := row{
		"topic":      view.GetTopic(),
		"body":       string(view.GetBody()),
		"tag":        view.GetTag(),
		"keys":       append([]string{}, view.GetKeys()...),
		"properties": view.GetProperties(),
		"messageId":  view.GetMessageId(),
		"group":      view.GetMessageGroup(),
		"attempt":    view.GetDeliveryAttempt(),
		"deliverAt":  nil,
		"at":         time.Now().UnixMilli(),
	}
	if at := view.GetDeliveryTimestamp(); at != nil {
		described["deliverAt"] = at.UnixMilli()
	}
	return described
}

// --- producing

func startProducer(told *request) error {
	checker := &rmq.TransactionChecker{Check: func(view *rmq.MessageView) rmq.TransactionResolution {
		note(told.Name, view)
		switch told.Check {
		case "commit":
			return rmq.COMMIT
		case "rollback":
			return rmq.ROLLBACK
		}
		return rmq.UNKNOWN
	}}
	producer, err := rmq.NewProducer(configure(told), rmq.WithTopics(told.Topics...), rmq.WithTransactionChecker(checker))
	if err != nil {
		return err
	}
	if err := producer.Start(); err != nil {
		return err
	}
	keep(told.Name, producer)
	return nil
}

func send(producer rmq.Producer, told *request) (rows []any, err error) {
	for _, each := range told.Messages {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		receipts, err := sendOne(ctx, producer, build(each), told.Transaction)
		cancel()
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{"messageId": receipts[0].MessageID})
	}
	return rows, nil
}

func sendOne(ctx context.Context, producer rmq.Producer, msg *rmq.Message, end string) ([]*rmq.SendReceipt, error) {
	if end == "" {
		return producer.Send(ctx, msg)
	}
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(ctx, msg, transaction)
	if err == nil && end == "commit" {
		err = transaction.Commit()
	} else if err == nil && end == "rollback" {
		err = transaction.RollBack()
	}
	return receipts, err
}

func build(told message) *rmq.Message {
	msg := &rmq.Message{Topic: told.Topic, Body: []byte(told.Body)}
	if told.Tag != "" {
		msg.SetTag(told.Tag)
	}
	msg.SetKeys(told.Keys...)
	if told.Group != "" {
		msg.SetMessageGroup(told.Group)
	}
	if told.DeliverAt != 0 {
		msg.SetDelayTimestamp(time.UnixMilli(told.DeliverAt))
	}
	for key, value := range told.Properties {
		msg.AddProperty(key, value)
	}
	return msg
}

// --- consuming

func startPush(told *request) error {
	failures := sync.Map{}
	for body, times := range told.Fail {
		left := times
		failures.Store(body, &left)
	}
	var counting sync.Mutex
	listener := &rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
		note(told.Name, view)
		time.Sleep(milliseconds(told.BusyMs))
		counting.Lock()
		defer counting.Unlock()
		if left, ok := failures.Load(string(view.GetBody())); ok && *left.(*int) > 0 {
			*left.(*int)--
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}}
	consumer, err := rmq.NewPushConsumer(configure(told),
		rmq.WithPushSubscriptionExpressions(readSubscriptions(told)),
		rmq.WithPushAwaitDuration(20*time.Second),
		rmq.WithPushMessageListener(listener))
	if err != nil {
		return err
	}
	if err := consumer.Start(); err != nil {
		return err
	}
	keep(told.Name, consumer)
	return nil
}

func startSimple(told *request) error {
	consumer, err := rmq.NewSimpleConsumer(configure(told),
		rmq.WithSimpleSubscriptionExpressions(readSubscriptions(told)),
		rmq.WithSimpleAwaitDuration(milliseconds(told.AwaitMs)))
	if err != nil {
		return err
	}
	if err := consumer.Start(); err != nil {
		return err
	}
	keep(told.Name, consumer)
	return nil
}

func receive(consumer rmq.SimpleConsumer, told *request) (rows []any, err error) {
	views, err := consumer.Receive(context.Background(), told.Max, milliseconds(told.InvisibleMs))
	if err != nil {
		// This client reports an empty answer as an error.
		if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetCode() == 40401 {
			return nil, nil
		}
		return nil, err
	}
	mutex.Lock()
	defer mutex.Unlock()
	for _, view := range views {
		keys++
		key := fmt.Sprintf("m%d", keys)
		received[key] = view
		described := describe(view)
		described["key"] = key
		rows = append(rows, described)
	}
	return rows, nil
}
