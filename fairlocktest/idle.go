package fairlocktest

import (
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"time"
)

// idleTimeout is how long Clock.Wait waits.
var idleTimeout = 10 * time.Second

// idleDetector detects when all goroutines are idle. The runtime stops the world to print their stacks, so the stacks
// are of one moment: if no goroutine runs or could run then, none will until an event comes from outside the process. A
// connection of this package is in memory.
type idleDetector struct {
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
	// longCall is how long a system call must take for its goroutine to count as idle.
	longCall = 50 * time.Millisecond
	// networkLooks is how often all goroutines must be seen idle if some wait for the network. The runtime polls the
	// network when a processor has nothing else to do, so there are pauses in between.
	networkLooks = 3
)

func newIdleDetector() *idleDetector {
	d := &idleDetector{buffer: make([]byte, 64<<10), calls: map[string]call{}, counts: []metrics.Sample{
		{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"},
	}}
	d.test = d.enclosing()
	return d
}

// enclosing returns the goroutine of the test that the caller belongs to, or the caller.
func (d *idleDetector) enclosing() string {
	all := map[string]goroutine{}
	var first string
	for text := range strings.SplitSeq(d.stacks(true), "\n\n") {
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

// bubble returns the number of the testing/synctest bubble that the caller is in, or "".
func bubble() string {
	var buffer [256]byte
	head, _, _ := strings.Cut(string(buffer[:runtime.Stack(buffer[:], false)]), "\n")
	_, b, _ := strings.Cut(head, "synctest bubble ")
	return strings.TrimSuffix(b, "]:")
}

// stacks returns the stack of the caller's goroutine, or those of all.
func (d *idleDetector) stacks(all bool) string {
	for {
		if n := runtime.Stack(d.buffer, all); n < len(d.buffer) {
			return string(d.buffer[:n])
		}
		d.buffer = make([]byte, 2*len(d.buffer))
	}
}

// wait returns when all goroutines are idle, or after limit the stacks of those that are not.
func (d *idleDetector) wait(limit time.Duration) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	until := time.Now().Add(limit) //nolint:forbidigo // goroutines run by the system's clock
	quiet := 0
	for pause := time.Duration(0); ; pause = min(pause+10*time.Microsecond, time.Millisecond) {
		for range 1000 {
			if runtime.Gosched(); d.seemsQuiet() {
				break
			}
		}
		busy, network := d.busy()
		if busy == "" {
			if quiet++; !network || quiet == networkLooks {
				return ""
			}
			time.Sleep(100 * time.Microsecond) //nolint:forbidigo // as below
			continue
		}
		quiet = 0
		if time.Now().After(until) { //nolint:forbidigo // as above
			return busy
		}
		time.Sleep(pause) //nolint:forbidigo // as above; no event says that a goroutine is idle
	}
}

// seemsQuiet is a cheap guess, so that the world is not stopped while goroutines certainly run.
func (d *idleDetector) seemsQuiet() bool {
	metrics.Read(d.counts)
	return d.counts[0].Value.Uint64() == 0 && d.counts[1].Value.Uint64() <= 1
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

// waits reports whether a goroutine continues only after another one has acted. A goroutine that starts a garbage
// collection also shows as one that waits for a semaphore, but its stack does not begin in package sync: the runtime's
// own functions are not printed.
func (g goroutine) waits() bool {
	_, stack, _ := strings.Cut(g.stack, "\n")
	return waits[g.state] && (g.state != "semacquire" ||
		strings.HasPrefix(stack, "sync.") || strings.HasPrefix(stack, "internal/poll."))
}

// busy returns the stacks of the goroutines that run or could run, other than the caller's.
func (d *idleDetector) busy() (stacks string, network bool) {
	all := map[string]goroutine{}
	var order []goroutine
	for text := range strings.SplitSeq(d.stacks(true), "\n\n") {
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
			network = network || !d.foreign(g, all)
		case g.waits() || d.foreign(g, all):
		case g.state == "syscall" && d.inLongCall(g, calls):
		default:
			busy = append(busy, g.stack)
		}
	}
	d.calls = calls
	return strings.Join(busy, "\n\n"), network
}

// inLongCall reports whether a goroutine has been in a system call for long, and records in calls that it is in one.
// Calls on Go's sockets do not block: a goroutine in one is only waiting for a processor.
func (d *idleDetector) inLongCall(g goroutine, calls map[string]call) bool {
	_, stack, _ := strings.Cut(g.stack, "\n") // without how long it has waited
	c, ok := d.calls[g.id]
	if !ok || c.stack != stack {
		c = call{stack, time.Now()} //nolint:forbidigo // system calls go by the system's clock
	}
	calls[g.id] = c
	return strings.HasPrefix(stack, "os/signal.signal_recv(") ||
		time.Since(c.since) >= longCall && !strings.Contains(stack, "\nnet.(*netFD).") //nolint:forbidigo // as above
}

// foreign reports whether a goroutine belongs to another test, or is in Wait itself.
func (d *idleDetector) foreign(g goroutine, all map[string]goroutine) bool {
	if strings.Contains(g.stack, "fairlocktest.(*idleDetector).wait(") {
		return true
	}
	for range all {
		if g.id == d.test {
			return false
		}
		if g.test {
			return !d.within(g, all)
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
func (d *idleDetector) within(g goroutine, all map[string]goroutine) bool {
	return d.descends(g.id, d.test, all) || d.descends(d.test, g.id, all)
}

func (d *idleDetector) descends(id, from string, all map[string]goroutine) bool {
	for range all {
		if id == from {
			return true
		}
		id = all[id].parent
	}
	return false
}

// waits has the states, as the runtime prints them, of goroutines that wait for another goroutine, the network or the
// system's clock. A goroutine that waits for the runtime itself, perhaps for memory, is busy.
var waits = map[string]bool{
	"chan receive": true, "chan send": true, "select": true,
	"sync.Cond.Wait": true, "sync.WaitGroup.Wait": true, "semacquire": true,
	"sync.Mutex.Lock": true, "sync.RWMutex.Lock": true, "sync.RWMutex.RLock": true,
	"IO wait": true, "sleep": true, "coroutine": true, "synctest.Run": true, "synctest.Wait": true,
	"finalizer wait": true, "cleanup wait": true, "force gc": true, "trace reader": true,
}
