// Package monitor looks on while Redis carries out the scripts of mutexes: it is the witness of package history.
package monitor

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/chaos/history"
	"github.com/fairlock/fairlock-go/lua"
)

// Monitor reads what MONITOR shows, also again when its server was away. It sees the commands of scripts in the order
// in which they are carried out.
type Monitor struct {
	network, addr string
	tasks         sync.WaitGroup

	mu     sync.Mutex
	conn   net.Conn // guarded by mu
	closed bool     // guarded by mu
	reader *reader  // guarded by mu
}

// Start begins to look on. When it returns nothing is missed any more. All clients have this patience.
func Start(network, addr string, patience time.Duration) (*Monitor, error) {
	m := &Monitor{network: network, addr: addr, reader: newReader(patience)}
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
		if m.blind() { // Redis answers its clients first: what it did last may not have been told
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
			time.Sleep(2 * time.Millisecond) // no event tells when a server is there
		}
		m.blind()
	}
}

// blind notes that something may have been missed, unless it was closed, which it reports.
func (m *Monitor) blind() (closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.reader.blind()
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
	m.reader.part()
	return m.reader.Record
}

// Record is what was seen.
type Record struct {
	Seen   []Sighting
	Leases []Lease
	Faults []string // what a mutex must not do
}

// Lease is one grant of a lock, or one renewal.
type Lease struct {
	Token string
	At    int64         // when the script began, in µs of Redis's clock
	Told  int64         // when it was told, in ns as in an Event
	Lasts time.Duration // from At
}

// catchUp waits until it has seen what was done before, or the server does not answer.
func (m *Monitor) catchUp() {
	m.mu.Lock()
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return
	}
	conn, err := net.DialTimeout(m.network, m.addr, time.Second)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("ECHO " + marker + "\r\n")); err != nil {
		return
	}
	if _, err := conn.Read(make([]byte, 64)); err != nil {
		return
	}
	select {
	case <-m.reader.marked:
	case <-time.After(time.Second): // it is blind just now
	}
}

// marker is what it says itself, to hear it.
const marker = "fairlock-monitor-was-here"

// Sighting is a history.Witness and when it was told, in ns as in an Event.
type Sighting struct {
	history.Witness

	Told int64
	anew bool // it joins without a ticket, and is not there
}

// reader makes sense of lines. It knows the scripts by what they do.
type reader struct {
	Record

	kept   int64         // µs: a queue is kept at least for so long after a waiter was heard of
	marked chan struct{} // has room for one: the marker was read
	locks  map[string]*lock
	now    int64    // µs: when the last command was carried out
	argv   []string // of the script that runs
	began  int64    // µs: when it began
	raised string   // the lock whose fence it has set; or none
	gave   bool     // it has granted somebody the lock, be it nobody
}

// slack is for how long before the end of a lease the lock may seem to be free already: Redis reckons by when a script
// began, which is a little before its line is written, or more on a busy machine.
const slack = 5000 // µs

// lock is what is known of one.
type lock struct {
	waiting map[string]bool
	heard   int64 // µs: when a waiter was last heard of
	until   int64 // µs: when the queue expires; 0: not known, or it is empty
	holder  string
	ends    int64           // µs: when the lock expires
	gone    map[string]bool // tokens that have given the lock back
	fenced  bool            // its last fence was seen
}

func newReader(patience time.Duration) *reader {
	return &reader{
		kept: (patience + 200*time.Millisecond).Microseconds(), marked: make(chan struct{}, 1), locks: map[string]*lock{},
	}
}

// blind notes that something may have been missed.
func (r *reader) blind() {
	clear(r.locks)
	r.note(history.Witness{Op: history.Blind})
}

func (r *reader) note(w history.Witness) {
	r.Seen = append(r.Seen, Sighting{Witness: w, Told: history.Now()})
}

// part parts the lives of a token that came back without the ticket which it had got, because the answer was lost until
// it was dropped, or until what it was granted had run out. All but the last are of another token then.
func (r *reader) part() {
	over := map[string]bool{}
	for i := len(r.Seen) - 1; i >= 0; i-- {
		s := &r.Seen[i]
		token := s.Token
		if over[token] {
			s.Token = "an earlier life of " + token
		}
		over[token] = over[token] || s.anew
	}
}

// line reads `<seconds>.<µs> [<db> <client>] "<command>" "<argument>"…`. The commands of a script follow on it, with the
// client "lua".
func (r *reader) line(text string) {
	when, rest, _ := strings.Cut(text, " [")
	_, client, _ := strings.Cut(rest, " ")
	client, command, ok := strings.Cut(client, "] ")
	at, err := strconv.ParseInt(strings.Replace(when, ".", "", 1), 10, 64)
	if !ok || err != nil {
		return
	}
	if at < r.now-slack {
		r.back(at)
	}
	r.now = at
	if client != "lua" {
		if r.raised != "" && !r.gave {
			r.fault(r.began, r.raised, "%s raises the fence and is not granted the lock", r.caller())
		}
		r.began, r.raised, r.gave = at, "", false
		r.script(command)
		return
	}
	args := split(command)
	if len(args) < 2 {
		return
	}
	name, what, ok := key(args[1])
	if !ok {
		return
	}
	l := r.of(name)
	switch {
	case r.expired(l, r.began):
		r.wipe(at, name, l)
	case r.expired(l, at):
		// While a script runs, nothing expires, be Redis stopped in the midst of it. But if its clock stepped between the
		// line of the call and the time by which the script goes, it has; and nobody can tell a stop from a step.
		r.blind()
		l = r.of(name)
	}
	switch what {
	case "queue":
		r.queue(at, name, l, args)
	case "alive":
		if args[0] == "ZADD" {
			until, _ := strconv.ParseInt(args[2], 10, 64)
			l.heard = at
			r.note(history.Witness{At: at, Op: history.Heard, Lock: name, Token: args[3], Until: until})
		}
	case "fence":
		if args[0] == "SET" && l.fenced {
			r.raised = name
		}
		l.fenced = l.fenced || args[0] == "SET"
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
		if !l.live(r.now) {
			l.holder = ""
		}
		if r.expired(l, r.now+slack) { // perhaps
			r.wipe(at, name, l)
		}
	}
}

// expired reports whether the queue of a lock has expired by its own, or perhaps, if it is not known when it does.
func (r *reader) expired(l *lock, at int64) bool {
	if l.until == 0 {
		return len(l.waiting) > 0 && at > l.heard+r.kept
	}
	return at/1000 > l.until/1000 // as Redis reckons
}

func (r *reader) wipe(at int64, name string, l *lock) {
	l.waiting, l.until = map[string]bool{}, 0
	r.note(history.Witness{At: at, Op: history.Wiped, Lock: name})
}

// script notes whose call runs now.
func (r *reader) script(command string) {
	r.argv = nil
	if strings.Contains(command, marker) {
		select {
		case r.marked <- struct{}{}:
		default:
		}
	}
	if !strings.HasPrefix(command, `"EVALSHA"`) && !strings.HasPrefix(command, `"EVAL"`) &&
		!strings.HasPrefix(command, `"evalsha"`) && !strings.HasPrefix(command, `"eval"`) {
		return
	}
	args := split(command)
	if len(args) < 3 {
		return
	}
	if n, err := strconv.Atoi(args[2]); err == nil && len(args) >= 3+n {
		r.argv = args[3+n:]
	}
}

// caller is the token that the script is about.
func (r *reader) caller() string {
	if len(r.argv) == 0 {
		return ""
	}
	return r.argv[0]
}

func (r *reader) queue(at int64, name string, l *lock, args []string) {
	switch args[0] {
	case "ZADD":
		ticket, _ := strconv.ParseUint(args[2], 10, 64)
		token := args[3]
		if l.holder == token && l.live(at) {
			r.fault(at, name, "%s holds the lock and is put into the queue", token)
		}
		if l.gone[token] {
			r.fault(at, name, "%s has given the lock back and is put into the queue", token)
		}
		anew := !l.waiting[token] && token == r.caller() && len(r.argv) > 4 && r.argv[4] == "0"
		l.waiting[token] = true
		r.note(history.Witness{At: at, Op: history.Joins, Lock: name, Token: token, Ticket: ticket})
		r.Seen[len(r.Seen)-1].anew = anew
	case "ZREM":
		token := args[2]
		if !l.waiting[token] {
			return // it was not there, or was granted the lock
		}
		delete(l.waiting, token)
		op := history.Dropped
		if token == r.caller() {
			op = history.Leaves
		}
		r.note(history.Witness{At: at, Op: op, Lock: name, Token: token})
		if len(l.waiting) == 0 {
			l.until = 0
		}
	case "PEXPIRE":
		ms, _ := strconv.ParseInt(args[2], 10, 64)
		l.until = at + ms*1000
	}
}

// live reports whether somebody is known to hold the lock.
func (l *lock) live(at int64) bool { return l.holder != "" && at < l.ends-slack }

func (r *reader) owner(at int64, name string, l *lock, args []string) {
	live := l.live(at)
	switch args[0] {
	case "SET":
		token := args[2]
		r.gave = true
		if live {
			r.fault(at, name, "%s is granted the lock, which %s holds", token, l.holder)
		}
		if l.gone[token] {
			r.fault(at, name, "%s is granted the lock, which it has given back", token)
		}
		ms, _ := strconv.ParseInt(args[len(args)-1], 10, 64)
		l.holder, l.ends = token, r.began+ms*1000
		r.lease(token, ms)
		delete(l.waiting, token)
		if len(l.waiting) == 0 {
			l.until = 0
		}
		if token != lua.Quarantined {
			r.note(history.Witness{At: at, Op: history.Given, Lock: name, Token: token})
		}
	case "DEL":
		if live && l.holder != r.caller() {
			r.fault(at, name, "%s releases the lock, which %s holds", r.caller(), l.holder)
		}
		l.gone[l.holder] = true
		l.holder = ""
	case "PEXPIRE":
		if live && l.holder != r.caller() {
			r.fault(at, name, "%s renews the lock, which %s holds", r.caller(), l.holder)
		}
		ms, _ := strconv.ParseInt(args[2], 10, 64)
		l.ends = r.began + ms*1000
		r.lease(r.caller(), ms)
	}
}

func (r *reader) lease(token string, ms int64) {
	lasts := time.Duration(ms) * time.Millisecond
	r.Leases = append(r.Leases, Lease{Token: token, At: r.began, Told: history.Now(), Lasts: lasts})
}

func (r *reader) fault(at int64, name, format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf("at %d µs of Redis's time: lock %q: ", at, name)+fmt.Sprintf(format, args...))
}

// key takes a key of a mutex apart: <namespace>:{<name>}:<what>.
func key(key string) (name, what string, ok bool) {
	_, rest, ok := strings.Cut(key, ":{")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "}:")
}

// split takes `"a" "b\"c"` apart.
func split(text string) []string {
	var list []string
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
