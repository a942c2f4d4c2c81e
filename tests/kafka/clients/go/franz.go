package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func franzClient(task Task, more ...kgo.Opt) *kgo.Client {
	level := kgo.ReadUncommitted()
	if task.Committed {
		level = kgo.ReadCommitted()
	}
	options := append([]kgo.Opt{kgo.SeedBrokers(task.Bootstrap), kgo.FetchIsolationLevel(level)}, more...)
	client, err := kgo.NewClient(options...)
	check(err)
	return client
}

func franzPoll(client *kgo.Client, task Task) {
	clock := newClock(task)
	for clock.Left() > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), clock.Left())
		fetches := client.PollFetches(ctx)
		cancel()
		for _, e := range fetches.Errors() {
			if e.Err != context.DeadlineExceeded {
				fail(fmt.Errorf("%s-%d: %w", e.Topic, e.Partition, e.Err))
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			headers := []Header{}
			for _, h := range r.Headers {
				headers = append(headers, Header{h.Key, h.Value})
			}
			clock.Seen(Record{r.Topic, r.Partition, r.Offset, millis(r.Timestamp), r.Key, r.Value, headers})
		})
	}
}

func franzConsume(task Task) {
	at := map[string]map[int32]kgo.Offset{task.Topic: {task.Partition: kgo.NewOffset().At(task.Start)}}
	client := franzClient(task, kgo.ConsumePartitions(at))
	defer client.Close()
	franzPoll(client, task)
}

func franzGroup(task Task) {
	client := franzClient(task, kgo.ConsumerGroup(task.Group), kgo.ConsumeTopics(task.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	franzPoll(client, task)
	check(client.CommitUncommittedOffsets(context.Background()))
	client.Close() // leaves the group
}

func franzProduce(task Task) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[task.Compression]),
	}
	if !task.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client := franzClient(task, options...)
	defer client.Close()
	records := []*kgo.Record{}
	for _, r := range task.Records {
		headers := []kgo.RecordHeader{}
		for _, h := range r.Headers {
			headers = append(headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, &kgo.Record{
			Topic: task.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: headers,
			Timestamp: time.UnixMilli(r.Timestamp),
		})
	}
	// Its own time-out for a record counts from the record's timestamp.
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(task.TimeoutMs)*time.Millisecond)
	defer cancel()
	for _, done := range client.ProduceSync(ctx, records...) {
		check(done.Err)
		show(map[string]int64{"partition": int64(done.Record.Partition), "offset": done.Record.Offset})
	}
}

func franzTime(task Task) {
	client := franzClient(task)
	defer client.Close()
	found, err := kadm.NewClient(client).ListOffsetsAfterMilli(context.Background(), task.Timestamp, task.Topic)
	check(err)
	offset, _ := found.Lookup(task.Topic, task.Partition)
	check(offset.Err)
	show(map[string]int64{"offset": offset.Offset, "timestamp": offset.Timestamp})
}
