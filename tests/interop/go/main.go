// A program for tests: takes one JSON object a line, does it with the official Go client, and answers with lines
// {"row": ...} and at last {"done": number of rows} or {"error": text}.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// request is everything a line may say; what a field means depends on `do`.
type request struct {
	Do         string    `json:"do"`
	Name       string    `json:"name"`
	Names      []string  `json:"names"`
	Bodies     []string  `json:"bodies"`
	NameServer string    `json:"nameServer"`
	Broker     string    `json:"broker"`
	Group      string    `json:"group"`
	Namespace  string    `json:"namespace"`
	Topic      string    `json:"topic"`
	Topics     []string  `json:"topics"`
	Queues     int       `json:"queues"`
	Queue      int       `json:"queue"`
	Offset     int64     `json:"offset"`
	Count      int       `json:"count"`
	Seconds    float64   `json:"seconds"`
	Mode       string    `json:"mode"`
	Selector   string    `json:"selector"`
	Template   string    `json:"template"`
	Retries    *int      `json:"retries"`
	Messages   []message `json:"messages"`
	Expression string    `json:"expression"`
	SQL        bool      `json:"sql"`
	From       string    `json:"from"`
	Timestamp  string    `json:"timestamp"`
	Broadcast  bool      `json:"broadcast"`
	Ordered    bool      `json:"ordered"`
	Batch      int       `json:"batch"`
	Fail       int32     `json:"fail"`
	DelayLevel int       `json:"delayLevel"`
	TriesMax   *int32    `json:"triesMax"`
	Reply      string    `json:"reply"`
	AccessKey  string    `json:"accessKey"`
	SecretKey  string    `json:"secretKey"`
}

type action func(request) ([]interface{}, error)

var actions = map[string]action{
	"startProducer":     startProducer,
	"startTransactions": startTransactions,
	"send":              send,
	"sendInTransaction": sendInTransaction,
	"listChecks":        listChecks,
	"request":           requestReply,
	"startConsumer":     startConsumer,
	"await":             awaitMessages,
	"awaitBodies":       awaitBodies,
	"list":              listMessages,
	"startPuller":       startPuller,
	"pullFrom":          pullFrom,
	"poll":              poll,
	"commit":            commitOffset,
	"readOffset":        readOffset,
	"createTopic":       createTopic,
	"deleteTopic":       deleteTopic,
	"listTopics":        listTopics,
	"listGroups":        listGroups,
	"listQueues":        listQueues,
	"stop":              stop,
}

// stops ends what was started, by its name.
var stops = map[string]func() error{}

func stop(r request) ([]interface{}, error) {
	end, known := stops[r.Name]
	if !known {
		return nil, fmt.Errorf("nothing is called %q", r.Name)
	}
	delete(stops, r.Name)
	return nil, end()
}

// waitUntil asks repeatedly until the answer is yes or an error that does not go away, or the time is over.
func waitUntil(seconds float64, ask func() (bool, error)) error {
	deadline := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for {
		yes, err := ask()
		if yes {
			return nil
		}
		if time.Now().After(deadline) {
			if err == nil {
				err = errors.New("not true")
			}
			return fmt.Errorf("after %v s: %w", seconds, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func answer(line []byte) ([]interface{}, error) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	act, known := actions[r.Do]
	if !known {
		return nil, fmt.Errorf("unknown action %q", r.Do)
	}
	return act(r)
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	say := json.NewEncoder(out)
	say.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		rows, err := answer(line)
		if err != nil {
			say.Encode(map[string]string{"error": err.Error()})
		} else {
			for _, row := range rows {
				say.Encode(map[string]interface{}{"row": row})
			}
			say.Encode(map[string]int{"done": len(rows)})
		}
		out.Flush()
	}
}
