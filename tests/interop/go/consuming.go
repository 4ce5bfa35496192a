package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	pullBatch    = 32
	replySeconds = 20.0
)

// inbox keeps what a consumer was given, in the order its listener was called.
type inbox struct {
	mutex    sync.Mutex
	messages []interface{}
}

var (
	inboxes = map[string]*inbox{}
	pullers = map[string]rocketmq.PullConsumer{}
)

func consumerOptions(r request) []consumer.Option {
	options := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{r.NameServer})),
		consumer.WithGroupName(r.Group),
		consumer.WithInstance(r.Name),
		consumer.WithNamespace(r.Namespace),
		consumer.WithConsumerOrder(r.Ordered),
		consumer.WithPullBatchSize(pullBatch),
	}
	if r.AccessKey != "" {
		options = append(options, consumer.WithCredentials(r.credentials()))
	}
	switch r.From {
	case "last":
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	case "timestamp":
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp))
		options = append(options, consumer.WithConsumeTimestamp(r.Timestamp))
	default:
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	}
	if r.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if r.Batch > 0 {
		options = append(options, consumer.WithConsumeMessageBatchMaxSize(r.Batch))
	}
	if r.TriesMax != nil {
		options = append(options, consumer.WithMaxReconsumeTimes(*r.TriesMax))
	}
	return options
}

func selectorOf(r request) consumer.MessageSelector {
	if r.SQL {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: r.Expression}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: r.Expression}
}

func startConsumer(r request) ([]interface{}, error) {
	made, err := rocketmq.NewPushConsumer(consumerOptions(r)...)
	if err != nil {
		return nil, err
	}
	box := &inbox{}
	for _, topic := range r.Topics {
		if err := made.Subscribe(topic, selectorOf(r), box.listener(r)); err != nil {
			return nil, err
		}
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	inboxes[r.Name] = box
	stops[r.Name] = made.Shutdown
	return nil, nil
}

func (box *inbox) listener(r request) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, m := range messages {
			box.put(m, len(messages))
			if m.ReconsumeTimes < r.Fail {
				result = failure(ctx, r)
			}
			if r.Reply != "" {
				if err := reply(r, m); err != nil {
					fmt.Fprintln(os.Stderr, "reply failed:", err)
				}
			}
		}
		return result, nil
	}
}

// failure says "later": after a delay chosen here, or for an ordered consumer at once and before all others.
func failure(ctx context.Context, r request) consumer.ConsumeResult {
	if r.Ordered {
		return consumer.SuspendCurrentQueueAMoment
	}
	if concurrent, known := primitive.GetConcurrentlyCtx(ctx); known && r.DelayLevel > 0 {
		concurrent.DelayLevelWhenNextConsume = r.DelayLevel
	}
	return consumer.ConsumeRetryLater
}

// reply answers a request through the producer that the test named.
func reply(r request, m *primitive.MessageExt) error {
	made, err := consumer.CreateReplyMessage(m, nil)
	if err != nil {
		return err
	}
	// The library takes the content for properties and leaves the body empty.
	made.Body = append([]byte("re: "), m.Body...)
	// The one who asks may not have told the broker of itself yet: the library does that a second after its start.
	return waitUntil(replySeconds, func() (bool, error) {
		_, err := producers[r.Reply].SendSync(context.Background(), made)
		return err == nil, err
	})
}

func (box *inbox) put(m *primitive.MessageExt, together int) {
	box.mutex.Lock()
	defer box.mutex.Unlock()
	box.messages = append(box.messages, describe(m, together))
}

func (box *inbox) list() []interface{} {
	box.mutex.Lock()
	defer box.mutex.Unlock()
	return append([]interface{}(nil), box.messages...)
}

// awaitMessages waits until the consumers have some messages together, and tells all of them.
func awaitMessages(r request) ([]interface{}, error) {
	var rows []interface{}
	err := waitUntil(r.Seconds, func() (bool, error) {
		box, known := inboxes[r.Name]
		if !known {
			return false, fmt.Errorf("no consumer is called %q", r.Name)
		}
		rows = box.list()
		return len(rows) >= r.Count, fmt.Errorf("%d messages instead of %d: %+v", len(rows), r.Count, rows)
	})
	return rows, err
}

// awaitBodies waits until some consumers have all of some bodies, and tells who has which.
func awaitBodies(r request) ([]interface{}, error) {
	wanted := map[string]bool{}
	for _, body := range r.Bodies {
		wanted[body] = true
	}
	var rows []interface{}
	err := waitUntil(r.Seconds, func() (bool, error) {
		rows = nil
		found := map[string]bool{}
		for _, name := range r.Names {
			for _, told := range inboxes[name].list() {
				if body := told.(received).Body; wanted[body] {
					rows = append(rows, map[string]string{"name": name, "body": body})
					found[body] = true
				}
			}
		}
		return len(found) == len(wanted), fmt.Errorf("%d of %d bodies: %v", len(found), len(wanted), rows)
	})
	return rows, err
}

func listMessages(r request) ([]interface{}, error) {
	box, known := inboxes[r.Name]
	if !known {
		return nil, fmt.Errorf("no consumer is called %q", r.Name)
	}
	return box.list(), nil
}

// --- pull consumers

// pulled is what a test hears of one pull.
type pulled struct {
	Status   int        `json:"status"`
	Next     int64      `json:"next"`
	Min      int64      `json:"min"`
	Max      int64      `json:"max"`
	Duration int64      `json:"milliseconds"`
	Messages []received `json:"messages"`
}

func startPuller(r request) ([]interface{}, error) {
	made, err := rocketmq.NewPullConsumer(consumerOptions(r)...)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(r.Topic, selectorOf(r)); err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	pullers[r.Name] = made
	stops[r.Name] = made.Shutdown
	return nil, nil
}

func findPuller(r request) (rocketmq.PullConsumer, *primitive.MessageQueue, error) {
	from, known := pullers[r.Name]
	if !known {
		return nil, nil, fmt.Errorf("no pull consumer is called %q", r.Name)
	}
	return from, &primitive.MessageQueue{Topic: r.Topic, BrokerName: r.Broker, QueueId: r.Queue}, nil
}

func pullFrom(r request) ([]interface{}, error) {
	from, queue, err := findPuller(r)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	result, err := from.PullFrom(context.Background(), queue, r.Offset, r.Count)
	if err != nil {
		return nil, err
	}
	row := pulled{
		Status: int(result.Status), Next: result.NextBeginOffset, Min: result.MinOffset, Max: result.MaxOffset,
		Duration: time.Since(begin).Milliseconds(), Messages: []received{},
	}
	for _, m := range result.GetMessageExts() {
		row.Messages = append(row.Messages, describe(m, len(result.GetMessageExts())))
	}
	return []interface{}{row}, nil
}

// poll takes what the client has pulled by itself and acknowledges it, until there are as many as wanted.
func poll(r request) ([]interface{}, error) {
	from, _, err := findPuller(r)
	if err != nil {
		return nil, err
	}
	var rows []interface{}
	err = waitUntil(r.Seconds, func() (bool, error) {
		got, err := from.Poll(context.Background(), time.Second)
		if err == nil {
			for _, m := range got.GetMsgList() {
				rows = append(rows, describe(m, len(got.GetMsgList())))
			}
			from.ACK(context.Background(), got, consumer.ConsumeSuccess)
		}
		return len(rows) >= r.Count, fmt.Errorf("%d messages instead of %d", len(rows), r.Count)
	})
	return rows, err
}

func commitOffset(r request) ([]interface{}, error) {
	from, queue, err := findPuller(r)
	if err != nil {
		return nil, err
	}
	if err := from.UpdateOffset(queue, r.Offset); err != nil {
		return nil, err
	}
	return nil, from.PersistOffset(context.Background(), r.Topic)
}

func readOffset(r request) ([]interface{}, error) {
	from, queue, err := findPuller(r)
	if err != nil {
		return nil, err
	}
	offset, err := from.CurrentOffset(queue)
	return []interface{}{offset}, err
}
