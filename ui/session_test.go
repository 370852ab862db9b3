package ui_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/ui"
)

// TestHandler_Sessions runs testdata/sessions.txt, in simulated time: what clients, the network and a browser do, and
// what the page shows. Force-release is allowed if the title of a session says so. Steps are
//
//	> CLIENT locks|waits|unlocks mutex|rest|rwmutex|semaphore|keyed NAME [NAMESPACE]   and its error
//	> lacks COMMAND   which the user of the page may not call, nor a script for it
//	> redis KEY VALUE, > checks, > sleep DURATION, > link cut|hang|mend, > delay DURATION
//	METHOD TARGET [TYPED [ORIGIN]]   and what the page shows
//
// A rest is a mutex with a minimum hold of an hour. Semaphores have 3 permits. #1 is the first fence of the session,
// and ␣ is a space in a word. The file is written anew with -update.
func TestHandler_Sessions(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/sessions.txt")
	require.NoError(t, err)
	var said []string
	for part := range strings.SplitSeq(strings.TrimSpace(string(file)), "\n\n# ") {
		title, steps, _ := strings.Cut(strings.TrimPrefix(part, "# "), "\n")
		o := ui.Options{Namespace: "shop", AllowForceRelease: strings.Contains(title, "is allowed")}
		visit(t, o, func(t *testing.T, s *site) {
			run, shown := session{site: s, leases: map[string]*fairlock.Lease{}}, "# "+title+"\n"
			for step := range strings.Lines(steps + "\n") {
				words := strings.Fields(strings.NewReplacer(run.fences...).Replace(step))
				for i, word := range words {
					words[i] = strings.ReplaceAll(word, "␣", " ")
				}
				switch words[0] {
				case ">":
					shown += step + run.act(append(words[1:], "", "", ""))
				case http.MethodGet, http.MethodPost:
					shown += step + strings.NewReplacer(run.numbers...).Replace(run.browse(append(words, "", "")))
				}
			}
			said = append(said, shown)
		})
	}
	golden.Equal(t, "sessions.txt", strings.Join(said, "\n"))
}

// session is a session under way.
type session struct {
	*site
	leases          map[string]*fairlock.Lease // by client and lock
	fences, numbers []string                   // what replaces numbers by fences, and fences by numbers
}

// act has a client, the network or another program do something, and returns the client's error.
func (s *session) act(words []string) string {
	d, _ := time.ParseDuration(words[1])
	switch words[0] {
	case "redis":
		require.NoError(s.t, s.redis.Miniredis.Set(words[1], words[2]))
	case "lacks":
		s.traffic.lacks.Store(words[1])
	case "checks": // so that their end does not come between steps
		s.get("/server")
	case "sleep":
		time.Sleep(d)
	case "delay":
		s.link.Delay(d, 0)
	case "link":
		map[string]func(){"cut": s.link.Cut, "hang": s.link.Hang, "mend": s.link.Mend}[words[1]]()
	default:
		return s.lock(words[0], words[1], words[2], words[3], words[4])
	}
	return ""
}

func (s *session) lock(client, verb, kind, name, namespace string) string {
	if namespace == "" {
		namespace = "shop"
	}
	l := map[string]fairlocktest.Lock{
		"mutex": s.redis.Mutex(name), "rest": s.redis.Mutex(name, fairlock.WithMinHold(time.Hour)),
		"rwmutex": s.redis.RWMutex(name), "semaphore": s.redis.Semaphore(name, 3), "keyed": s.redis.KeyedSemaphore(name, 3).Key("a"),
	}[kind].In(namespace)
	key := client + kind + name
	switch verb {
	case "waits":
		l.CrashQueued(client, time.Hour)
	case "locks":
		s.leases[key] = l.HoldAs(client)
		number, fence := fmt.Sprint("#", len(s.fences)/2+1), fmt.Sprint(s.leases[key].Fence())
		s.fences, s.numbers = append(s.fences, number, fence), append(s.numbers, fence, number)
	case "unlocks":
		if err := s.leases[key].Unlock(s.t.Context()); err != nil {
			return "  " + err.Error() + "\n"
		}
	}
	return ""
}

// browse sends a request, and returns what is shown then.
func (s *session) browse(words []string) string {
	w := s.send(words[0], words[1], url.Values{"typed": {words[2]}}.Encode(), "Sec-Fetch-Site", words[3])
	shown := fmt.Sprint(w.Code)
	for _, name := range []string{"Location", "Refresh"} {
		if value := w.Header().Get(name); value != "" {
			shown += fmt.Sprintf(", %s: %s", name, value)
		}
	}
	return shown + "\n" + lines(w.Body.String())
}
