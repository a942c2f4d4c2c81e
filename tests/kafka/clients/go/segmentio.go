package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

func segmentioReader(task Task, config kafka.ReaderConfig) *kafka.Reader {
	config.Brokers = []string{task.Bootstrap}
	config.Topic = task.Topic
	config.MinBytes, config.MaxBytes, config.MaxWait = 1, 10_000_000, 200*time.Millisecond
	if task.Committed {
		config.IsolationLevel = kafka.ReadCommitted
	}
	return kafka.NewReader(config)
}

func segmentioPoll(reader *kafka.Reader, task Task, each func(kafka.Message)) {
	clock := newClock(task)
	for clock.Left() > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), clock.Left())
		m, err := reader.FetchMessage(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
		check(err)
		headers := []Header{}
		for _, h := range m.Headers {
			headers = append(headers, Header{h.Key, h.Value})
		}
		clock.Seen(Record{m.Topic, int32(m.Partition), m.Offset, millis(m.Time), m.Key, m.Value, headers})
		each(m)
	}
}

func segmentioConsume(task Task) {
	reader := segmentioReader(task, kafka.ReaderConfig{Partition: int(task.Partition)})
	check(reader.SetOffset(task.Start))
	segmentioPoll(reader, task, func(kafka.Message) {})
	check(reader.Close())
}

func segmentioGroup(task Task) {
	reader := segmentioReader(task, kafka.ReaderConfig{GroupID: task.Group, StartOffset: kafka.FirstOffset})
	last := map[int]kafka.Message{}
	segmentioPoll(reader, task, func(m kafka.Message) { last[m.Partition] = m })
	for _, m := range last {
		check(reader.CommitMessages(context.Background(), m))
	}
	check(reader.Close())
}

func segmentioProduce(task Task) {
	codecs := map[string]kafka.Compression{
		"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	messages := []kafka.Message{}
	for _, r := range task.Records {
		headers := []kafka.Header{}
		for _, h := range r.Headers {
			headers = append(headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		messages = append(messages, kafka.Message{
			Key: r.Key, Value: r.Value, Headers: headers, Time: time.UnixMilli(r.Timestamp),
			WriterData: int(r.Partition),
		})
	}
	writer := kafka.Writer{
		Addr: kafka.TCP(task.Bootstrap), Topic: task.Topic, RequiredAcks: kafka.RequireAll,
		Compression: codecs[task.Compression], BatchTimeout: 5 * time.Millisecond, MaxAttempts: 3,
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.WriterData.(int) }),
		Completion: func(done []kafka.Message, err error) {
			check(err)
			for _, m := range done {
				show(map[string]int64{"partition": int64(m.Partition), "offset": m.Offset})
			}
		},
	}
	check(writer.WriteMessages(context.Background(), messages...))
	check(writer.Close())
}

func segmentioTime(task Task) {
	client := kafka.Client{Addr: kafka.TCP(task.Bootstrap), Timeout: 10 * time.Second}
	ask := kafka.TimeOffsetOf(int(task.Partition), time.UnixMilli(task.Timestamp))
	found, err := client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{task.Topic: {ask}},
	})
	check(err)
	part := found.Topics[task.Topic][0]
	check(part.Error)
	for offset, at := range part.Offsets {
		show(map[string]int64{"offset": offset, "timestamp": millis(at)})
	}
}
