// Kafka clients written in Go, behind one interface: clients LIBRARY '{"do": "consume", ...}'.
//
// What was asked for is one JSON object (Task); each record read or offset got is a line of JSON on
// standard output, in the order in which the library gave it. Exit status 1: the error is the last
// line on standard error. tests/kafka/clients/programs.py has the other side.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Task is what a client is to do; see tests/kafka/clients/client.py for each field.
type Task struct {
	Do          string   `json:"do"` // consume, group, produce, time
	Bootstrap   string   `json:"bootstrap"`
	Topic       string   `json:"topic"`
	Partition   int32    `json:"partition"`
	Start       int64    `json:"start"`
	Count       int      `json:"count"`
	Committed   bool     `json:"committed"`
	Group       string   `json:"group"`
	Timestamp   int64    `json:"timestamp"`
	Compression string   `json:"compression"`
	Idempotent  bool     `json:"idempotent"`
	Records     []Record `json:"records"`
	TimeoutMs   int64    `json:"timeout_ms"`
	LingerMs    int64    `json:"linger_ms"`
}

// Record is one that was read or is to be written. []byte is base64, and null if there is none.
type Record struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// Header is a header of a record.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Clock ends a read: when nothing came for LingerMs after the wanted number, or at the time-out.
type Clock struct {
	task  Task
	until time.Time
	last  time.Time
	seen  int
}

func newClock(task Task) *Clock {
	now := time.Now()
	return &Clock{task: task, last: now, until: now.Add(time.Duration(task.TimeoutMs) * time.Millisecond)}
}

// Left is how long to wait for the next record; 0 when it is over.
func (c *Clock) Left() time.Duration {
	left := time.Until(c.until)
	if c.seen >= c.task.Count {
		left = min(left, time.Until(c.last.Add(time.Duration(c.task.LingerMs)*time.Millisecond)))
	}
	return max(left, 0)
}

var out = bufio.NewWriter(os.Stdout)

// Seen prints a record.
func (c *Clock) Seen(r Record) {
	c.seen++
	c.last = time.Now()
	if c.task.Start >= 0 && r.Offset < c.task.Start {
		fail(fmt.Errorf("asked from offset %d, got %d", c.task.Start, r.Offset))
	}
	show(r)
}

// kafka-go tells of each partition's records in a goroutine of its own.
var showing sync.Mutex

func show(what any) {
	line, err := json.Marshal(what)
	check(err)
	showing.Lock()
	defer showing.Unlock()
	out.Write(append(line, '\n'))
}

func fail(err error) {
	out.Flush()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func millis(t time.Time) int64 { return t.UnixMilli() }

func main() {
	libraries := map[string]map[string]func(Task){
		"franz-go": {"consume": franzConsume, "group": franzGroup, "produce": franzProduce, "time": franzTime},
		"kafka-go": {"consume": segmentioConsume, "group": segmentioGroup, "produce": segmentioProduce, "time": segmentioTime},
		"sarama":   {"consume": saramaConsume, "group": saramaGroup, "produce": saramaProduce, "time": saramaTime},
	}
	var task Task
	check(json.Unmarshal([]byte(os.Args[2]), &task))
	do, ok := libraries[os.Args[1]][task.Do]
	if !ok {
		fail(fmt.Errorf("%s can't %s", os.Args[1], task.Do))
	}
	do(task)
	out.Flush()
}
