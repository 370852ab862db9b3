package fairlock

import (
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// mostBatches is how many batches may be under way at once. Two: a release need not wait for the answer to a join.
	// One that takes longer than quick does not count any more: it may hang, and the next takes another connection.
	mostBatches = 2
	// mostBatched is how many commands go in one batch.
	mostBatched = 256
)

// batcher sends the commands of a client. Those that come while others are under way go together, in one pipeline: one
// write and one read for all is half of what a command costs, here and in Redis. (go-redis's AutoPipeline does the same;
// it is marked experimental, belongs to the user's client, and keeps every command behind one that hangs.)
type batcher struct {
	client *Client
	plain  *redis.Client // nil if the client is of another kind, whose servers should not wait for each other: no batches

	mu      sync.Mutex
	waiting []command // guarded by mu
	batches int       // guarded by mu; under way, without the late ones
}

// command is sent by send, on a client or a pipeline; its answer goes to done.
type command struct {
	send func(redis.Scripter) *redis.Cmd
	done func(*redis.Cmd)
}

// add sees to it that a command is sent.
func (b *batcher) add(cmd command) {
	if b.plain == nil {
		b.client.work(func() { cmd.done(cmd.send(b.client.rdb)) })
		return
	}
	b.mu.Lock()
	b.waiting = append(b.waiting, cmd)
	start := b.batches < mostBatches
	if start {
		b.batches++
	}
	b.mu.Unlock()
	if start {
		b.client.work(b.run)
	}
}

// run sends one batch after the other until nothing waits, or one of them was late: then others go on.
func (b *batcher) run() {
	late := false // guarded by mu
	giveUp := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if late {
			return
		}
		late = true
		if len(b.waiting) > 0 {
			b.client.background(b.run) // inside a task: run is, and has not returned
		} else {
			b.batches--
		}
	}
	for {
		b.mu.Lock()
		n := min(len(b.waiting), mostBatched)
		if late || n == 0 {
			if !late {
				late = true // a timer that was not stopped in time has nothing left to do
				b.batches--
			}
			b.mu.Unlock()
			return
		}
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		b.mu.Unlock()
		timer := b.client.clock.AfterFunc(quick, giveUp)
		b.send(batch)
		timer.Stop()
	}
}

func (b *batcher) send(batch []command) {
	if len(batch) == 1 {
		batch[0].done(batch[0].send(b.client.rdb))
		return
	}
	pipe := b.plain.Pipeline()
	sent := make([]*redis.Cmd, len(batch))
	for i, cmd := range batch {
		sent[i] = cmd.send(pipe)
	}
	_, err := pipe.Exec(b.client.life) // each command has its own error
	for i, cmd := range batch {
		if err != nil && sent[i].Err() == nil && sent[i].Val() == nil {
			sent[i].SetErr(err) // or none of them, if Redis has refused the connection
		}
		cmd.done(sent[i])
	}
}
