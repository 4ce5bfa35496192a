package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	routeSeconds = 30.0
	askTime      = 5 * time.Second
)

// credentials is the account that signs what a request does.
func (r request) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: r.AccessKey, SecretKey: r.SecretKey}
}

func withAdmin(r request, act func(admin.Admin) ([]interface{}, error)) ([]interface{}, error) {
	options := []admin.AdminOption{
		admin.WithResolver(primitive.NewPassthroughResolver([]string{r.NameServer})), admin.WithNamespace(r.Namespace),
	}
	if r.AccessKey != "" {
		options = append(options, admin.WithCredentials(r.credentials()))
	}
	made, err := admin.NewAdmin(options...)
	if err != nil {
		return nil, err
	}
	defer made.Close()
	return act(made)
}

// createTopic makes a topic and waits until the name server tells clients of it; tells how often it had to ask.
func createTopic(r request) ([]interface{}, error) {
	return withAdmin(r, func(a admin.Admin) ([]interface{}, error) {
		err := a.CreateTopic(
			context.Background(), admin.WithTopicCreate(r.Topic), admin.WithBrokerAddrCreate(r.Broker),
			admin.WithReadQueueNums(r.Queues), admin.WithWriteQueueNums(r.Queues),
		)
		if err != nil {
			return nil, err
		}
		asked := 0
		err = waitUntil(routeSeconds, func() (bool, error) {
			asked++
			queues, err := a.FetchPublishMessageQueues(context.Background(), r.Topic)
			return len(queues) == r.Queues, err
		})
		return []interface{}{asked}, err
	})
}

func deleteTopic(r request) ([]interface{}, error) {
	return withAdmin(r, func(a admin.Admin) ([]interface{}, error) {
		return nil, a.DeleteTopic(
			context.Background(), admin.WithTopicDelete(r.Topic), admin.WithBrokerAddrDelete(r.Broker),
			admin.WithNameSrvAddr([]string{r.NameServer}),
		)
	})
}

func listTopics(r request) ([]interface{}, error) {
	return withAdmin(r, func(a admin.Admin) ([]interface{}, error) {
		topics, err := a.FetchAllTopicList(context.Background())
		if err != nil {
			return nil, err
		}
		var rows []interface{}
		for _, topic := range topics.TopicList {
			rows = append(rows, topic)
		}
		return rows, nil
	})
}

func listGroups(r request) ([]interface{}, error) {
	return withAdmin(r, func(a admin.Admin) ([]interface{}, error) {
		groups, err := a.GetAllSubscriptionGroup(context.Background(), r.Broker, askTime)
		if err != nil {
			return nil, err
		}
		var rows []interface{}
		for _, group := range groups.SubscriptionGroupTable {
			rows = append(rows, group)
		}
		return rows, nil
	})
}

func listQueues(r request) ([]interface{}, error) {
	return withAdmin(r, func(a admin.Admin) ([]interface{}, error) {
		queues, err := a.FetchPublishMessageQueues(context.Background(), r.Topic)
		if err != nil {
			return nil, err
		}
		var rows []interface{}
		for _, queue := range queues {
			rows = append(rows, fmt.Sprintf("%s/%d", queue.BrokerName, queue.QueueId))
		}
		return rows, nil
	})
}
