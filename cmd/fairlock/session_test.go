//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/internal/tools/sample"
)

// TestSessions runs testdata/sessions.txt: what clients of the library and the command do, and what the command says.
// Each session has a server of its own. Steps are
//
//	$ fairlock WORDS   and what that says; watch ends by SIGINT after the line that follows ^C
//	> CLIENT locks|waits|unlocks mutex|semaphore|rwmutex|keyed NAME[/NAMESPACE] [SIZE]   and its error
//	> redis COMMAND
//	> rights   which enters the lines that doctor --rights prints
//
// A client takes two permits of a semaphore, and one for key a of a keyed semaphore. #1 is the first fence that the
// command has said, ␣ is a space in a word, and ␛ an escape character. Durations are rounded to minutes. "granted" is
// left out before them: a server that pauses between a grant's number and its lease makes it look renewed. All channels
// are open by default, as on Redis 6.2, which then refuses rules for some of them.
// The file is written anew with -update. The last number of a lock with waiters is not said: a waiter that asks again
// changes it.
func TestSessions(t *testing.T) {
	f := newFixture(t)
	text, err := os.ReadFile("testdata/sessions.txt")
	require.NoError(t, err)
	var titles []string
	sessions := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n# ") {
		title, steps, _ := strings.Cut(strings.TrimPrefix(part, "# "), "\n")
		titles, sessions[title] = append(titles, title), steps+"\n"
	}
	said := make([]string, len(titles))
	together(f, sessions, func(t *testing.T, f fixture, title, steps string) {
		f.server, f.namespace = redistest.Start(t, "--acl-pubsub-default", "allchannels"), "shop"
		s := session{fixture: f.at("unix://" + f.server.Addr()), leases: map[string]chan *fairlock.Lease{}}
		shown := "# " + title + "\n"
		for step := range strings.Lines(steps) {
			switch words := strings.Fields(step); {
			case strings.HasPrefix(step, "> "):
				shown += step + s.act(s.meant(words[1:]))
			case strings.HasPrefix(step, "$ fairlock watch ") && strings.Contains(step, " ^C"):
				words, line, _ := strings.Cut(step, " ^C")
				shown += step + s.watched(s.meant(strings.Fields(words)[3:]), strings.TrimSpace(line))
			case strings.HasPrefix(step, "$ fairlock run "): // CMD and the guard write to files of a process
				shown += step + s.say(s.start(s.command(s.meant(words[2:])...)).wait())
			case strings.HasPrefix(step, "$ fairlock "):
				shown += step + s.say(s.call(s.meant(words[2:])...))
			}
		}
		said[slices.Index(titles, title)] = shown
	})
	golden.Equal(t, "sessions.txt", strings.Join(said, "\n"))
}

// session is a session under way.
type session struct {
	fixture
	leases map[string]chan *fairlock.Lease // by client and lock
	fences []string
}

// meant are the words for which those of a step stand.
func (s *session) meant(words []string) []string {
	for i, word := range words {
		words[i] = strings.NewReplacer("␣", " ", "␛", "\x1b", "FAIRLOCK_REDIS", "FAIRLOCK_REDIS", "REDIS", s.server.Addr(), "FILES", files).Replace(word)
		if n, err := strconv.Atoi(strings.TrimPrefix(word, "#")); err == nil && word[0] == '#' {
			require.LessOrEqual(s.t, n, len(s.fences), "%s has not been seen", word)
			words[i] = s.fences[n-1]
		}
	}
	return words
}

// act has a client do something, and returns its error.
func (s *session) act(words []string) string {
	s.t.Helper()
	switch words[0] {
	case "redis":
		args := make([]any, len(words)-1)
		for i, word := range words[1:] {
			args[i] = word
		}
		require.NoError(s.t, s.server.Client().Do(s.t.Context(), args...).Err(), words)
		return ""
	case "rights":
		for _, r := range doctor.RightsIn(s.namespace, s.server.Before7()) {
			s.act(append([]string{"redis"}, strings.Fields(r.ACL)...))
		}
		return ""
	}
	verb, kind := words[1], words[2]
	name, namespace, elsewhere := strings.Cut(words[3], "/")
	f, key := s.fixture, strings.Join(slices.Concat(words[:1], words[2:4]), " ")
	if elsewhere {
		f.namespace = namespace
	}
	if verb == "unlocks" {
		lease := <-s.leases[key]
		if err := lease.Unlock(s.t.Context()); err != nil {
			return "  " + err.Error() + "\n"
		}
		return ""
	}
	size := 0
	if len(words) > 4 {
		var err error
		size, err = strconv.Atoi(words[4])
		require.NoError(s.t, err)
	}
	c, acquire := f.client(words[0]), map[string]func(context.Context) (*fairlock.Lease, error){}
	acquire["mutex"] = c.Mutex(name).Lock
	acquire["rwmutex"] = c.RWMutex(name).Lock
	acquire["semaphore"] = permits(c.Semaphore(name, size))
	acquire["keyed"] = func(ctx context.Context) (*fairlock.Lease, error) {
		return c.KeyedSemaphore(name, size).Key("a").Acquire(ctx, 1)
	}
	leases := make(chan *fairlock.Lease, 1)
	s.leases[key] = leases
	if verb == "locks" {
		leases <- f.hold(acquire[kind])
		return ""
	}
	of := map[string]lock{"mutex": c.Mutex(name), "semaphore": c.Semaphore(name, size)}[kind]
	n := f.state(of).Waiting
	go func() { // until the client is closed
		lease, _ := acquire[kind](s.t.Context())
		leases <- lease
	}()
	f.queued(of, n+1)
	return ""
}

// watched is the line with that text that watch says, without its time.
func (s *session) watched(args []string, text string) string {
	s.t.Helper()
	watch := s.watch(args...)
	before := watch.expect(text)
	line := before[strings.LastIndex(before, "\n")+1:] + text + watch.expect("\n") + "\n"
	watch.signal(syscall.SIGINT)
	require.Zero(s.t, watch.wait().code)
	return s.say(result{out: line})
}

var (
	fence    = regexp.MustCompile(`\b\d{16}\b`)
	moments  = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)`)
	duration = regexp.MustCompile(`(after )?(\b\d[\d.hmµn]*s\b|\b\d+h\d+m\b)`)
	unstable = regexp.MustCompile(`"\w+_ms":(\d+|null),?`)
	process  = regexp.MustCompile(`-\d+@[\w.-]+`)
	user     = regexp.MustCompile(`[\w.-]+(/\w+-PID@)`)
	handle   = regexp.MustCompile(`:\d\.[\w.-]{22,}/`)
	spaces   = regexp.MustCompile(`(\S) {3,}`)
)

// say is what the command has said, without what is new in each run, and its exit code.
func (s *session) say(r result) string {
	text := r.out
	for line := range strings.Lines(r.errs) {
		text += "2> " + line
	}
	if r.code != 0 {
		text += fmt.Sprintf("exit code %d\n", r.code)
	}
	text = strings.NewReplacer(s.server.Addr(), "REDIS", files, "FILES").Replace(text)
	text = moments.ReplaceAllString(unstable.ReplaceAllString(text, ""), "NOW")
	text = fence.ReplaceAllStringFunc(text, func(number string) string {
		if !slices.Contains(s.fences, number) {
			s.fences = append(s.fences, number)
		}
		return fmt.Sprint("#", 1+slices.Index(s.fences, number))
	})
	text = user.ReplaceAllString(process.ReplaceAllString(handle.ReplaceAllString(text, ":TOKEN/"), "-PID@HOST"), "USER$1")
	text = duration.ReplaceAllStringFunc(text, func(text string) string {
		if strings.HasPrefix(text, "after ") { // as the command line has it
			return text
		}
		d, err := time.ParseDuration(text)
		require.NoError(s.t, err)
		return d.Round(time.Minute).String()
	})
	text = strings.ReplaceAll(text, "granted 0s ago", "0s ago")
	return spaces.ReplaceAllString(sample.Stable(text), "$1  ")
}
