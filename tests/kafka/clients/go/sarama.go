package main

import (
	"context"
	"time"

	"github.com/IBM/sarama"
)

func saramaConfig(task Task) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	if task.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	return config
}

func saramaRecord(m *sarama.ConsumerMessage) Record {
	headers := []Header{}
	for _, h := range m.Headers {
		headers = append(headers, Header{string(h.Key), h.Value})
	}
	return Record{m.Topic, m.Partition, m.Offset, millis(m.Timestamp), m.Key, m.Value, headers}
}

func saramaConsume(task Task) {
	consumer, err := sarama.NewConsumer([]string{task.Bootstrap}, saramaConfig(task))
	check(err)
	part, err := consumer.ConsumePartition(task.Topic, task.Partition, task.Start)
	check(err)
	clock := newClock(task)
	for clock.Left() > 0 {
		select {
		case m := <-part.Messages():
			clock.Seen(saramaRecord(m))
		case err := <-part.Errors():
			fail(err)
		case <-time.After(clock.Left()):
		}
	}
	check(part.Close())
	check(consumer.Close())
}

type saramaHandler struct {
	clock *Clock
	came  chan *sarama.ConsumerMessage
}

func (h saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		h.came <- m
		session.MarkMessage(m, "")
	}
	session.Commit()
	return nil
}

func saramaGroup(task Task) {
	group, err := sarama.NewConsumerGroup([]string{task.Bootstrap}, task.Group, saramaConfig(task))
	check(err)
	clock := newClock(task)
	handler := saramaHandler{clock, make(chan *sarama.ConsumerMessage)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{task.Topic}, handler); err != nil && ctx.Err() == nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for clock.Left() > 0 {
		select {
		case m := <-handler.came:
			clock.Seen(saramaRecord(m))
		case err := <-group.Errors():
			fail(err)
		case err := <-done:
			fail(err)
		case <-time.After(clock.Left()):
		}
	}
	cancel()
	check(<-done)
	check(group.Close())
}

func saramaProduce(task Task) {
	config := saramaConfig(task)
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	config.Producer.Compression = codecs[task.Compression]
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	if task.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer([]string{task.Bootstrap}, config)
	check(err)
	messages := []*sarama.ProducerMessage{}
	for _, r := range task.Records {
		headers := []sarama.RecordHeader{}
		for _, h := range r.Headers {
			headers = append(headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		m := &sarama.ProducerMessage{
			Topic: task.Topic, Partition: r.Partition, Headers: headers, Timestamp: time.UnixMilli(r.Timestamp),
		}
		if r.Key != nil {
			m.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			m.Value = sarama.ByteEncoder(r.Value)
		}
		messages = append(messages, m)
	}
	check(producer.SendMessages(messages))
	for _, m := range messages {
		show(map[string]int64{"partition": int64(m.Partition), "offset": m.Offset})
	}
	check(producer.Close())
}

func saramaTime(task Task) {
	client, err := sarama.NewClient([]string{task.Bootstrap}, saramaConfig(task))
	check(err)
	offset, err := client.GetOffset(task.Topic, task.Partition, task.Timestamp)
	check(err)
	show(map[string]int64{"offset": offset})
	check(client.Close())
}
