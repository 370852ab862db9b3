package fairlocktest

import (
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"
)

// restless is for how long Clock.Wait waits.
var restless = 10 * time.Second

// rest knows when all goroutines rest. The runtime stops the world to print their stacks, so that what it prints is one
// moment: if nobody runs or could run in it, nobody will until something comes from outside, for a connection of this
// package is memory.
type rest struct {
	test string // the goroutine of the test

	mu     sync.Mutex
	buffer []byte           // guarded by mu
	counts []metrics.Sample // guarded by mu
	calls  map[string]call  // guarded by mu: those that were in a system call when last seen
}

// call is a goroutine's system call.
type call struct {
	stack string
	since time.Time
}

const (
	// lengthy is after how long a system call is one for long.
	lengthy = 50 * time.Millisecond
	// looks is how often all must be seen at rest if some wait for the network, with pauses in which what has come over
	// it is noticed: the runtime looks for that when a processor has nothing else to do.
	looks = 3
)

func newRest() *rest {
	r := &rest{buffer: make([]byte, 64<<10), calls: map[string]call{}, counts: []metrics.Sample{
		{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"},
	}}
	r.test = r.enclosing()
	return r
}

// enclosing returns the goroutine of the test that the caller belongs to, or the caller.
func (r *rest) enclosing() string {
	all := map[string]goroutine{}
	var first string
	for text := range strings.SplitSeq(r.stacks(true), "\n\n") {
		g := parse(text)
		if all[g.id] = g; first == "" {
			first = g.id
		}
	}
	for id := first; ; {
		g, ok := all[id]
		if !ok {
			return first
		}
		if g.test {
			return id
		}
		id = g.parent
	}
}

// bubble returns which testing/synctest bubble the caller is in, or nothing.
func bubble() string {
	var buffer [256]byte
	head, _, _ := strings.Cut(string(buffer[:runtime.Stack(buffer[:], false)]), "\n")
	_, b, _ := strings.Cut(head, "synctest bubble ")
	return strings.TrimSuffix(b, "]:")
}

// stacks returns what the runtime prints of the caller's goroutine, or of all.
func (r *rest) stacks(all bool) string {
	for {
		if n := runtime.Stack(r.buffer, all); n < len(r.buffer) {
			return string(r.buffer[:n])
		}
		r.buffer = make([]byte, 2*len(r.buffer))
	}
}

// wait returns when all rest, or after limit the stacks of those that do not.
func (r *rest) wait(limit time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := time.Now().Add(limit) //nolint:forbidigo // goroutines run by the system's clock
	quiet := 0
	for pause := time.Duration(0); ; pause = min(pause+10*time.Microsecond, time.Millisecond) {
		for range 1000 {
			if runtime.Gosched(); r.seemsQuiet() {
				break
			}
		}
		busy, network := r.busy()
		if busy == "" {
			if quiet++; !network || quiet == looks {
				return ""
			}
			time.Sleep(100 * time.Microsecond) //nolint:forbidigo // as below
			continue
		}
		quiet = 0
		if time.Now().After(until) { //nolint:forbidigo // as above
			return busy
		}
		time.Sleep(pause) //nolint:forbidigo // as above; nobody tells when a goroutine has come to rest
	}
}

// seemsQuiet is a cheap guess, so that the world is stopped when it is likely to rest.
func (r *rest) seemsQuiet() bool {
	metrics.Read(r.counts)
	return r.counts[0].Value.Uint64() == 0 && r.counts[1].Value.Uint64() <= 1
}

// goroutine is one of a stack dump.
type goroutine struct {
	id, state, parent, stack string
	test                     bool // it runs a test
}

// parse reads
//
//	goroutine 7 [chan receive, 2 minutes]:
//	main.f(...)
//		/a/file.go:1 +0x1
//	created by main.g in goroutine 1
//		/a/file.go:2 +0x2
func parse(text string) goroutine {
	head, stack, _ := strings.Cut(text, "\n")
	id, state, _ := strings.Cut(strings.TrimPrefix(head, "goroutine "), " ")
	state = strings.TrimPrefix(state, "[")
	if i := strings.IndexAny(state, ",]("); i >= 0 {
		state = strings.TrimSpace(state[:i])
	}
	g := goroutine{id: id, state: state, stack: text, test: strings.Contains(stack, "testing.tRunner(")}
	if i := strings.Index(stack, "\ncreated by "); i >= 0 {
		by, _, _ := strings.Cut(stack[i+1:], "\n")
		if _, parent, ok := strings.Cut(by, " in goroutine "); ok {
			g.parent = parent
		}
	}
	return g
}

// waits reports whether a goroutine goes on only when another one does something. One that collects garbage waits to stop
// the world itself; it shows as any that waits for a semaphore, but that the runtime's own functions are not printed.
func (g goroutine) waits() bool {
	_, stack, _ := strings.Cut(g.stack, "\n")
	return waits[g.state] && (g.state != "semacquire" ||
		strings.HasPrefix(stack, "sync.") || strings.HasPrefix(stack, "internal/poll."))
}

// busy returns the stacks of the goroutines that run or could run, other than the caller's.
func (r *rest) busy() (stacks string, network bool) {
	all := map[string]goroutine{}
	var order []goroutine
	for text := range strings.SplitSeq(r.stacks(true), "\n\n") {
		g := parse(text)
		all[g.id] = g
		order = append(order, g)
	}
	calls := map[string]call{}
	var busy []string
	for i, g := range order {
		switch {
		case i == 0: // the caller
		case g.state == "IO wait":
			network = network || !r.foreign(g, all)
		case g.waits() || r.foreign(g, all):
		case g.state == "syscall" && r.lengthy(g, calls):
		default:
			busy = append(busy, g.stack)
		}
	}
	r.calls = calls
	return strings.Join(busy, "\n\n"), network
}

// lengthy reports whether a goroutine is in a system call for long, and notes in calls that it is in one. Go's sockets do
// not block: who is in a call on one is only kept from going on.
func (r *rest) lengthy(g goroutine, calls map[string]call) bool {
	_, stack, _ := strings.Cut(g.stack, "\n") // without how long it has waited
	c, ok := r.calls[g.id]
	if !ok || c.stack != stack {
		c = call{stack, time.Now()} //nolint:forbidigo // system calls go by the system's clock
	}
	calls[g.id] = c
	return strings.HasPrefix(stack, "os/signal.signal_recv(") ||
		time.Since(c.since) >= lengthy && !strings.Contains(stack, "\nnet.(*netFD).") //nolint:forbidigo // as above
}

// foreign reports whether a goroutine belongs to another test, or is in Wait itself.
func (r *rest) foreign(g goroutine, all map[string]goroutine) bool {
	if strings.Contains(g.stack, "fairlocktest.(*rest).wait(") {
		return true
	}
	for range all {
		if g.id == r.test {
			return false
		}
		if g.test {
			return !r.within(g, all)
		}
		parent, ok := all[g.parent]
		if !ok {
			return false
		}
		g = parent
	}
	return false
}

// within reports whether a test's goroutine is that of a subtest of ours, or of a test that ours is a subtest of.
func (r *rest) within(g goroutine, all map[string]goroutine) bool {
	return r.descends(g.id, r.test, all) || r.descends(r.test, g.id, all)
}

func (r *rest) descends(id, from string, all map[string]goroutine) bool {
	for range all {
		if id == from {
			return true
		}
		id = all[id].parent
	}
	return false
}

// waits are the states, as the runtime prints them, of goroutines that go on only when another one does something, or
// the network, or the system's clock. One that waits for the runtime itself, for memory perhaps, is busy.
var waits = map[string]bool{
	"chan receive": true, "chan send": true, "select": true,
	"sync.Cond.Wait": true, "sync.WaitGroup.Wait": true, "semacquire": true,
	"sync.Mutex.Lock": true, "sync.RWMutex.Lock": true, "sync.RWMutex.RLock": true,
	"IO wait": true, "sleep": true, "coroutine": true, "synctest.Run": true, "synctest.Wait": true,
	"finalizer wait": true, "cleanup wait": true, "force gc": true, "trace reader": true,
}
