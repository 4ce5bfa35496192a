package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	producers    = map[string]rocketmq.Producer{}
	transactions = map[string]rocketmq.TransactionProducer{}
	listeners    = map[string]*decider{}
)

// sent is what a test hears of a message that was sent.
type sent struct {
	Status        int    `json:"status"`
	MsgID         string `json:"msgId"`
	OffsetMsgID   string `json:"offsetMsgId"`
	Topic         string `json:"topic"`
	Broker        string `json:"broker"`
	Queue         int    `json:"queue"`
	Offset        int64  `json:"offset"`
	Region        string `json:"region"`
	TransactionID string `json:"transactionId"`
	State         int    `json:"state"`
}

func tell(result *primitive.SendResult) sent {
	return sent{
		Status: int(result.Status), MsgID: result.MsgID, OffsetMsgID: result.OffsetMsgID,
		Topic: result.MessageQueue.Topic, Broker: result.MessageQueue.BrokerName, Queue: result.MessageQueue.QueueId,
		Offset: result.QueueOffset, Region: result.RegionID, TransactionID: result.TransactionID,
	}
}

func producerOptions(r request) []producer.Option {
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{r.NameServer})),
		producer.WithGroupName(r.Group),
		// One client of its own for each: the library shares them by this name.
		producer.WithInstanceName(r.Name),
		producer.WithNamespace(r.Namespace),
	}
	switch r.Selector {
	case "manual":
		options = append(options, producer.WithQueueSelector(numbered{}))
	case "hash":
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	case "random":
		options = append(options, producer.WithQueueSelector(producer.NewRandomQueueSelector()))
	}
	if r.AccessKey != "" {
		options = append(options, producer.WithCredentials(r.credentials()))
	}
	if r.Template != "" {
		options = append(options, producer.WithCreateTopicKey(r.Template))
	}
	if r.Retries != nil {
		options = append(options, producer.WithRetry(*r.Retries))
	}
	return options
}

// numbered chooses the queue by the number the test gave.
type numbered struct{}

func (numbered) Select(m *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	for _, queue := range queues {
		if m.Queue != nil && queue.QueueId == m.Queue.QueueId {
			return queue
		}
	}
	return nil
}

func startProducer(r request) ([]interface{}, error) {
	made, err := rocketmq.NewProducer(producerOptions(r)...)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	producers[r.Name] = made
	stops[r.Name] = made.Shutdown
	return nil, nil
}

func buildAll(wanted []message) ([]*primitive.Message, error) {
	var built []*primitive.Message
	for _, one := range wanted {
		m, err := one.build()
		if err != nil {
			return nil, err
		}
		built = append(built, m)
	}
	return built, nil
}

func send(r request) ([]interface{}, error) {
	from, known := producers[r.Name]
	if !known {
		return nil, fmt.Errorf("no producer is called %q", r.Name)
	}
	messages, err := buildAll(r.Messages)
	if err != nil {
		return nil, err
	}
	switch r.Mode {
	case "sync":
		return sendEach(from, messages)
	case "batch":
		result, err := from.SendSync(context.Background(), messages...)
		if err != nil {
			return nil, err
		}
		return []interface{}{tell(result)}, nil
	case "async":
		return sendAsync(from, separate(messages))
	case "batchAsync":
		return sendAsync(from, [][]*primitive.Message{messages})
	case "batchOneway":
		return nil, from.SendOneWay(context.Background(), messages...)
	case "oneway":
		for _, m := range messages {
			if err := from.SendOneWay(context.Background(), m); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	return nil, fmt.Errorf("unknown mode %q", r.Mode)
}

func sendEach(from rocketmq.Producer, messages []*primitive.Message) ([]interface{}, error) {
	var rows []interface{}
	for _, m := range messages {
		result, err := from.SendSync(context.Background(), m)
		if err != nil {
			return nil, err
		}
		rows = append(rows, tell(result))
	}
	return rows, nil
}

func separate(messages []*primitive.Message) [][]*primitive.Message {
	var groups [][]*primitive.Message
	for _, m := range messages {
		groups = append(groups, []*primitive.Message{m})
	}
	return groups
}

// sendAsync sends groups of messages, several at once as a batch, and waits for all answers.
func sendAsync(from rocketmq.Producer, groups [][]*primitive.Message) ([]interface{}, error) {
	rows := make([]interface{}, len(groups))
	failures := make([]error, len(groups))
	var answered sync.WaitGroup
	answered.Add(len(groups))
	for number, group := range groups {
		number := number
		err := from.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			defer answered.Done()
			if err != nil {
				failures[number] = err
			} else {
				rows[number] = tell(result)
			}
		}, group...)
		if err != nil {
			return nil, err
		}
	}
	answered.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// requestReply sends one message and waits for what its consumer answers.
func requestReply(r request) ([]interface{}, error) {
	from, known := producers[r.Name]
	if !known {
		return nil, fmt.Errorf("no producer is called %q", r.Name)
	}
	built, err := r.Messages[0].build()
	if err != nil {
		return nil, err
	}
	reply, err := from.Request(context.Background(), time.Duration(r.Seconds*float64(time.Second)), built)
	if err != nil {
		return nil, err
	}
	return []interface{}{map[string]string{"body": string(reply.Body)}}, nil
}

// decider says what became of local transactions: property `local` first, and `check` when the broker asks again.
type decider struct {
	mutex   sync.Mutex
	checked []string
}

func decide(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (d *decider) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return decide(m.GetProperty("local"))
}

func (d *decider) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.checked = append(d.checked, string(m.Body))
	return decide(m.GetProperty("check"))
}

func startTransactions(r request) ([]interface{}, error) {
	listener := &decider{}
	made, err := rocketmq.NewTransactionProducer(listener, producerOptions(r)...)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	transactions[r.Name], listeners[r.Name] = made, listener
	stops[r.Name] = made.Shutdown
	return nil, nil
}

func sendInTransaction(r request) ([]interface{}, error) {
	from, known := transactions[r.Name]
	if !known {
		return nil, fmt.Errorf("no transaction producer is called %q", r.Name)
	}
	messages, err := buildAll(r.Messages)
	if err != nil {
		return nil, err
	}
	var rows []interface{}
	for _, m := range messages {
		result, err := from.SendMessageInTransaction(context.Background(), m)
		if err != nil {
			return nil, err
		}
		row := tell(result.SendResult)
		row.State = int(result.State)
		rows = append(rows, row)
	}
	return rows, nil
}

// listChecks waits until the broker has asked about some messages, and tells their bodies.
func listChecks(r request) ([]interface{}, error) {
	listener, known := listeners[r.Name]
	if !known {
		return nil, fmt.Errorf("no transaction producer is called %q", r.Name)
	}
	var rows []interface{}
	err := waitUntil(r.Seconds, func() (bool, error) {
		listener.mutex.Lock()
		defer listener.mutex.Unlock()
		rows = nil
		for _, body := range listener.checked {
			rows = append(rows, body)
		}
		return len(rows) >= r.Count, fmt.Errorf("asked about %v", rows)
	})
	return rows, err
}
