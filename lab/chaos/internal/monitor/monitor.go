// Package monitor observes what redis-server does to mutexes. It reads MONITOR, which shows the commands of scripts in
// their order of execution.
package monitor

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/tools/history"
)

// Monitor observes a server, and again after it was down.
type Monitor struct {
	network, addr string
	tasks         sync.WaitGroup

	mu     sync.Mutex
	conn   net.Conn // guarded by mu
	closed bool     // guarded by mu
	reader *reader  // guarded by mu
}

// Start begins to observe. When it returns nothing is missed any more. All clients have this WaiterTTL; now is the time
// for events.
func Start(network, addr string, waiterTTL time.Duration, now func() int64) (*Monitor, error) {
	m := &Monitor{network: network, addr: addr, reader: newReader(waiterTTL, now)}
	lines, err := m.connect()
	if err != nil {
		return nil, err
	}
	m.tasks.Go(func() { m.run(lines) })
	return m, nil
}

func (m *Monitor) connect() (*bufio.Reader, error) {
	conn, err := net.Dial(m.network, m.addr)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	m.conn = conn
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(conn, 1<<16)
	answer, err := lines.ReadString('\n')
	if err == nil && answer != "+OK\r\n" {
		err = fmt.Errorf("MONITOR: %q", answer)
	}
	return lines, err
}

func (m *Monitor) run(lines *bufio.Reader) {
	for {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			m.mu.Lock()
			m.reader.line(strings.TrimRight(strings.TrimPrefix(line, "+"), "\r\n"))
			m.mu.Unlock()
		}
		if m.misses() { // Redis answers its clients first: what it did last may not have been shown
			return
		}
		var err error
		for lines, err = m.connect(); err != nil; lines, err = m.connect() {
			m.mu.Lock()
			closed := m.closed
			m.mu.Unlock()
			if closed {
				return
			}
			time.Sleep(2 * time.Millisecond) // no event says when a server is up
		}
		m.misses()
	}
}

// misses notes that something may have been missed, unless it was closed, which it reports.
func (m *Monitor) misses() (closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.reader.misses()
	}
	return m.closed
}

// Close ends it, and returns what it has seen: all that was done before.
func (m *Monitor) Close() Record {
	m.catchUp()
	m.mu.Lock()
	m.closed = true
	_ = m.conn.Close()
	m.mu.Unlock()
	m.tasks.Wait()
	m.reader.separate()
	return m.reader.Record
}

// catchUp waits until it has seen what was done before, or the server does not answer.
func (m *Monitor) catchUp() {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	conn, err := net.DialTimeout(m.network, m.addr, time.Second)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("ECHO " + marker + "\r\n")); err != nil || closed {
		return
	}
	if _, err := conn.Read(make([]byte, 64)); err != nil {
		return
	}
	select {
	case <-m.reader.marked:
	case <-time.After(time.Second): // it does not see anything just now
	}
}

// marker is what it sends itself, to see that.
const marker = "fairlock-monitor-was-here"

// Record is what was seen.
type Record struct {
	Seen   []Sighting
	Leases []Lease
	Faults []string // what the scripts of a mutex must not do
}

// Sighting is a history.ServerEvent and when it was seen.
type Sighting struct {
	history.ServerEvent

	Told int64 // the time for events
	anew bool  // it joins without a ticket, and is not in the queue
}

// Lease is one grant of a lock, or one renewal.
type Lease struct {
	Token string
	At    int64         // when the script began, in µs of Redis's clock
	Told  int64         // when it was seen, as in Sighting
	Lasts time.Duration // from At
}

// reader interprets lines. It knows the scripts by what they do.
type reader struct {
	Record

	now    func() int64
	kept   int64         // µs: how long a queue is kept at least after a heartbeat
	marked chan struct{} // receives when the marker was read; has room for one
	locks  map[string]*lock
	at     int64    // µs: when the last command was carried out
	argv   []string // of the script that runs
	began  int64    // µs: when it began
	first  int      // index in Seen of the first that it did
}

// slack is how long before the end of a lease the lock may seem to be free. Redis uses the time at which a script
// began, which is before its line is written.
const slack = 5000 // µs

// lock is what is known of one.
type lock struct {
	waiting map[string]bool
	kept    int64 // µs: when the last heartbeat of a waiter was seen
	until   int64 // µs: when the queue expires; 0: not known, or it is empty
	clock   int64 // µs: the queue's, as it was recorded
	clockAt int64 // µs: and when that was
	holder  string
	ends    int64           // µs: when the lock expires
	gone    map[string]bool // tokens that have released the lock
}

func newReader(waiterTTL time.Duration, now func() int64) *reader {
	kept := (waiterTTL + 11*time.Minute).Microseconds()
	return &reader{now: now, kept: kept, marked: make(chan struct{}, 1), locks: map[string]*lock{}}
}

// misses notes that something may have been missed.
func (r *reader) misses() {
	clear(r.locks)
	r.note(history.ServerEvent{Op: history.Misses})
}

func (r *reader) note(e history.ServerEvent) {
	r.Seen = append(r.Seen, Sighting{ServerEvent: e, Told: r.now()})
}

func (r *reader) fault(at int64, name, format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf("at %d µs of Redis's time: lock %q: ", at, name)+fmt.Sprintf(format, args...))
}

// separate renames a token that came back without its ticket. It was dropped, or its grant ended, before it got the
// reply with the ticket.
func (r *reader) separate() {
	over := map[string]bool{}
	for i := len(r.Seen) - 1; i >= 0; i-- {
		s := &r.Seen[i]
		token := s.Token
		if over[token] {
			s.Token = "earlier:" + token
		}
		over[token] = over[token] || s.anew
	}
}

// line reads `<seconds>.<µs> [<db> <client>] "<command>" "<argument>"…`. The commands of a script follow on it, with
// the client "lua".
func (r *reader) line(text string) {
	when, rest, _ := strings.Cut(text, " [")
	_, client, _ := strings.Cut(rest, " ")
	client, command, ok := strings.Cut(client, "] ")
	at, err := strconv.ParseInt(strings.Replace(when, ".", "", 1), 10, 64)
	if !ok || err != nil {
		return
	}
	if at < r.at-slack {
		r.back(at)
	}
	r.at = at
	if client != "lua" {
		r.began, r.first = at, len(r.Seen)
		r.script(command)
		return
	}
	args := split(command)
	if len(args) < 2 {
		return
	}
	_, name, ok := strings.Cut(args[1], ":{") // <namespace>:{<name>}:<what>
	name, what, is := strings.Cut(name, "}:")
	if !ok || !is {
		return
	}
	l := r.of(name)
	switch {
	case l.expired(r.began, r.kept):
		r.expire(at, name, l)
	case l.expired(at, r.kept):
		// While a script runs nothing expires, even if Redis is stopped in the middle of it. But if its clock was stepped
		// between the line of the call and the time by which the script goes, it has; and a stop looks like a step.
		r.misses()
		l = r.of(name)
	}
	r.end(at, name, l)
	switch what {
	case "number":
		if args[0] == "SET" { // "<layout> <last> <clock> <at>"
			_, times, _ := strings.Cut(args[2], " ")
			_, times, _ = strings.Cut(times, " ")
			clock, set, _ := strings.Cut(times, " ")
			l.clock, _ = strconv.ParseInt(clock, 10, 64)
			l.clockAt, _ = strconv.ParseInt(set, 10, 64)
		}
	case "queue":
		r.queue(at, name, l, args)
	case "heartbeats":
		r.heartbeats(at, name, l, args)
	case "lock":
		r.owner(at, name, l, args)
	}
}

// of is what is known of a lock.
func (r *reader) of(name string) *lock {
	l := r.locks[name]
	if l == nil {
		l = &lock{waiting: map[string]bool{}, gone: map[string]bool{}}
		r.locks[name] = l
	}
	return l
}

// back notes that Redis's clock steps back: what has ended by then does not come back.
func (r *reader) back(at int64) {
	for name, l := range r.locks {
		r.end(r.at, name, l)
		if l.expired(r.at+slack, r.kept) { // perhaps
			r.expire(at, name, l)
		}
	}
}

// expired reports whether the queue has expired, or perhaps, if it is not known when it does.
func (l *lock) expired(at, kept int64) bool {
	if l.until == 0 {
		return len(l.waiting) > 0 && at > l.kept+kept
	}
	return at/1000 > l.until/1000 // as Redis reckons
}

// expire notes that the queue has expired, because no heartbeat has kept it.
func (r *reader) expire(at int64, name string, l *lock) {
	for _, token := range slices.Sorted(maps.Keys(l.waiting)) {
		r.note(history.ServerEvent{At: at, Op: history.Leaves, Lock: name, Token: token})
	}
	l.waiting, l.until = map[string]bool{}, 0
}

// live reports whether the lock is held for certain.
func (l *lock) live(at int64) bool { return l.holder != "" && at < l.ends-slack }

// end notes that a holder does not hold the lock any more, if its lease has ended by then.
func (r *reader) end(at int64, name string, l *lock) {
	if l.holder != "" && !l.live(at) {
		r.note(history.ServerEvent{At: at, Op: history.Ends, Lock: name, Token: l.holder})
		l.holder = ""
	}
}

// script notes which script runs now.
func (r *reader) script(command string) {
	r.argv = nil
	if strings.Contains(command, marker) {
		select {
		case r.marked <- struct{}{}:
		default:
		}
	}
	args := split(command)
	if len(args) < 3 || !strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") {
		return
	}
	if n, err := strconv.Atoi(args[2]); err == nil && len(args) >= 3+n {
		r.argv = args[3+n:]
	}
}

// caller is the token of the script's caller, if it is one's.
func (r *reader) caller() string {
	if len(r.argv) < 2 {
		return ""
	}
	return r.argv[1] // after fence_ttl
}

// names reports whether the script's caller names a token: its own, or that of a waiter that leaves or sends a
// heartbeat.
func (r *reader) names(token string) bool { return slices.Contains(r.argv, token) }

func (r *reader) queue(at int64, name string, l *lock, args []string) {
	switch args[0] {
	case "ZADD":
		ticket, _ := strconv.ParseUint(args[2], 10, 64)
		token := args[3]
		if l.gone[token] {
			r.fault(at, name, "%s has released the lock and joins the queue", token)
		}
		anew := !l.waiting[token] && r.names(token) && len(r.argv) > 4 && r.argv[4] == "0"
		l.waiting[token], l.kept = true, at
		r.note(history.ServerEvent{At: at, Op: history.Joins, Lock: name, Token: token, Ticket: ticket})
		r.Seen[len(r.Seen)-1].anew = anew
	case "ZREM":
		for _, token := range args[2:] {
			r.remove(at, name, l, token)
		}
	case "PEXPIRE":
		ms, _ := strconv.ParseInt(args[2], 10, 64)
		l.until = at + ms*1000
	case "UNLINK":
		r.expire(at, name, l)
	}
}

// remove notes that a waiter is removed from the queue, unless it was granted the lock, or was not there.
func (r *reader) remove(at int64, name string, l *lock, token string) {
	if !l.waiting[token] {
		return
	}
	if delete(l.waiting, token); len(l.waiting) == 0 {
		l.until = 0
	}
	if r.names(token) {
		r.note(history.ServerEvent{At: at, Op: history.Leaves, Lock: name, Token: token})
		return
	}
	clock := l.clock + min(max(at-l.clockAt, 0), int64(time.Second/time.Microsecond)) // as the script sees it, at most
	r.note(history.ServerEvent{At: at, Op: history.Drops, Lock: name, Token: token, Until: clock})
}

// takeBack forgets that this script has removed a waiter from the queue: it does so before it grants it the lock.
func (r *reader) takeBack(name, token string) {
	for i := len(r.Seen) - 1; i >= r.first; i-- {
		if s := r.Seen[i]; s.Lock == name && s.Token == token && (s.Op == history.Drops || s.Op == history.Leaves) {
			r.Seen = slices.Delete(r.Seen, i, i+1)
			return
		}
	}
}

// heartbeats notes until when waiters keep their tickets.
func (r *reader) heartbeats(at int64, name string, l *lock, args []string) {
	first := 2 // of the first score
	for first < len(args) && (args[first] == "XX" || args[first] == "CH") {
		first++
	}
	// those whose times were lost: they are not compared
	if args[0] != "ZADD" || first < len(args) && args[first] == "NX" {
		return
	}
	for i := first; i+1 < len(args); i += 2 {
		until, _ := strconv.ParseInt(args[i], 10, 64)
		l.kept = at
		r.note(history.ServerEvent{At: at, Op: history.Keeps, Lock: name, Token: args[i+1], Until: until})
	}
}

func (r *reader) owner(at int64, name string, l *lock, args []string) {
	ms, _ := strconv.ParseInt(args[len(args)-1], 10, 64)
	switch args[0] {
	case "SET":
		token, _, _ := strings.Cut(args[2], " ") // and the fence
		if l.gone[token] {
			r.fault(at, name, "%s is granted the lock, which it has released", token)
		}
		l.holder, l.ends = token, r.began+ms*1000
		r.lease(token, ms)
		delete(l.waiting, token)
		if len(l.waiting) == 0 {
			l.until = 0
		}
		r.takeBack(name, token)
		r.note(history.ServerEvent{At: at, Op: history.Owns, Lock: name, Token: token})
	case "DEL":
		if l.holder != "" && !r.names(l.holder) {
			r.fault(at, name, "%s releases the lock, which %s holds", r.caller(), l.holder)
		}
		l.gone[l.holder] = true
		l.ends = 0
		r.end(at, name, l)
	case "PEXPIRE":
		if l.holder != "" && !r.names(l.holder) {
			r.fault(at, name, "%s renews the lock, which %s holds", r.caller(), l.holder)
		}
		l.ends = r.began + ms*1000
		r.lease(r.caller(), ms)
	}
}

func (r *reader) lease(token string, ms int64) {
	r.Leases = append(r.Leases, Lease{Token: token, At: r.began, Told: r.now(),
		Lasts: time.Duration(ms) * time.Millisecond})
}

// split takes `"a" "b\"c"` apart.
func split(text string) (list []string) {
	for {
		start := strings.IndexByte(text, '"')
		if start < 0 {
			return list
		}
		end := start + 1
		for end < len(text) && text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(text) {
			return list
		}
		arg := text[start+1 : end]
		if strings.Contains(arg, `\`) {
			if plain, err := strconv.Unquote(text[start : end+1]); err == nil {
				arg = plain
			}
		}
		list = append(list, arg)
		text = text[end+1:]
	}
}
