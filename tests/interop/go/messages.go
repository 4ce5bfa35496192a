package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"unicode/utf8"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Longer bodies are told by their length and digest only.
const bodyToldMax = 4096

// message is what a test wants sent.
type message struct {
	Topic       string            `json:"topic"`
	Body        string            `json:"body"`
	Base64      string            `json:"base64"`
	Tags        string            `json:"tags"`
	Keys        []string          `json:"keys"`
	Properties  map[string]string `json:"properties"`
	ShardingKey string            `json:"shardingKey"`
	DelayLevel  int               `json:"delayLevel"`
	Queue       *int              `json:"queue"`
	Flag        int32             `json:"flag"`
}

// received is what a test hears of a message that came.
type received struct {
	Topic          string            `json:"topic"`
	Queue          int               `json:"queue"`
	Offset         int64             `json:"offset"`
	Body           string            `json:"body"`
	Length         int               `json:"length"`
	Sha256         string            `json:"sha256"`
	Flag           int32             `json:"flag"`
	SysFlag        int32             `json:"sysFlag"`
	Tags           string            `json:"tags"`
	Keys           string            `json:"keys"`
	Properties     map[string]string `json:"properties"`
	MsgID          string            `json:"msgId"`
	OffsetMsgID    string            `json:"offsetMsgId"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	BornTimestamp  int64             `json:"bornTimestamp"`
	StoreTimestamp int64             `json:"storeTimestamp"`
	BornHost       string            `json:"bornHost"`
	StoreHost      string            `json:"storeHost"`
	// How many messages its listener was given at once.
	Together int `json:"together"`
}

func (m message) build() (*primitive.Message, error) {
	body := []byte(m.Body)
	if m.Base64 != "" {
		decoded, err := base64.StdEncoding.DecodeString(m.Base64)
		if err != nil {
			return nil, err
		}
		body = decoded
	}
	built := primitive.NewMessage(m.Topic, body)
	built.Flag = m.Flag
	for key, value := range m.Properties {
		built.WithProperty(key, value)
	}
	if m.Tags != "" {
		built.WithTag(m.Tags)
	}
	if len(m.Keys) > 0 {
		built.WithKeys(m.Keys)
	}
	if m.ShardingKey != "" {
		built.WithShardingKey(m.ShardingKey)
	}
	if m.DelayLevel > 0 {
		built.WithDelayTimeLevel(m.DelayLevel)
	}
	if m.Queue != nil {
		built.Queue = &primitive.MessageQueue{Topic: m.Topic, QueueId: *m.Queue}
	}
	return built, nil
}

func describe(m *primitive.MessageExt, together int) received {
	digest := sha256.Sum256(m.Body)
	body := ""
	if len(m.Body) <= bodyToldMax && utf8.Valid(m.Body) {
		body = string(m.Body)
	}
	queue := -1
	if m.Queue != nil {
		queue = m.Queue.QueueId
	}
	return received{
		Topic: m.Topic, Queue: queue, Offset: m.QueueOffset, Body: body, Length: len(m.Body),
		Sha256: hex.EncodeToString(digest[:]), Flag: m.Flag, SysFlag: m.SysFlag, Tags: m.GetTags(), Keys: m.GetKeys(),
		Properties: m.GetProperties(), MsgID: m.MsgId, OffsetMsgID: m.OffsetMsgId, ReconsumeTimes: m.ReconsumeTimes,
		BornTimestamp: m.BornTimestamp, StoreTimestamp: m.StoreTimestamp, BornHost: m.BornHost,
		StoreHost: m.StoreHost, Together: together,
	}
}
