package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// world is what the replicas have in common.
type world struct {
	t      *testing.T
	server *redistest.Server
	model  string
	asked  chan thought
}

// thought is an answer that the model is giving. It ends when the channel is closed.
type thought struct {
	question string
	end      chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, server: redistest.Start(t), asked: make(chan thought, 100)}
	m := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		question, _ := io.ReadAll(r.Body)
		now := thought{string(question), make(chan struct{})}
		_, _ = fmt.Fprintln(out, "well,")
		_ = http.NewResponseController(out).Flush()
		w.asked <- now
		select {
		case <-now.end:
			_, _ = fmt.Fprintln(out, "done")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(m.Close)
	w.model = m.URL
	return w
}

// next returns the answer that the model begins next.
func (w *world) next(question string) thought {
	w.t.Helper()
	select {
	case now := <-w.asked:
		require.Equal(w.t, question, now.question)
		return now
	case <-time.After(time.Minute):
		require.Fail(w.t, "the model is not asked", question)
		return thought{}
	}
}

// state waits until that many permits are held, and that many requests wait.
func (w *world) state(used, waiting int) {
	w.t.Helper()
	operator, turns := admin.New(w.server.Client(), ""), fairlock.ID{Kind: fairlock.KindKeyedSemaphore, Name: "model"}
	require.Eventually(w.t, func() bool {
		st, err := operator.Inspect(w.t.Context(), turns, 1, 1)
		return err == nil && st.Used == used && st.Waiting == waiting
	}, time.Minute, time.Millisecond, "%d are held, %d wait", used, waiting)
}

// replica is the program, in this process.
type replica struct {
	t    *testing.T
	url  string
	stop func() // as SIGTERM does
	end  chan error
}

func (w *world) start() replica {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	in, out := io.Pipe()
	r := replica{w.t, "", stop, make(chan error, 1)}
	go func() {
		r.end <- run(ctx, config{"unix://" + w.server.Addr(), "127.0.0.1:0", w.model, time.Minute}, out)
		close(r.end)
	}()
	w.t.Cleanup(func() { stop(); require.NoError(w.t, <-r.end) })
	line, err := bufio.NewReader(in).ReadString('\n')
	require.NoError(w.t, err)
	r.url = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	return r
}

// ask asks a question, and returns the response when it begins.
func (r replica) ask(user, question string, header ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/answers", strings.NewReader(question))
	require.NoError(r.t, err)
	req.Header.Set("X-User", user)
	for _, h := range header {
		req.Header.Set("Prefer", h)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// body returns the rest of a response: events as "event data" if it has any.
func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return strings.TrimSpace(strings.NewReplacer("event: ", "", "\ndata: ", " ", "\n\n", "; ").Replace(string(text)))
}

// Three replicas share the limits. Users take turns, and are told their positions.
func TestGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, c := w.start(), w.start(), w.start()
	a.ask("ann", "1")
	ann1 := w.next("1")
	b.ask("ann", "2")
	ann2 := w.next("2")
	third := c.ask("ann", "3") // at her limit, and one is free
	w.state(2, 1)
	fourth := c.ask("ann", "4")
	w.state(2, 2)
	bob1 := a.ask("bob", "b1")
	thinks := w.next("b1")
	second := b.ask("bob", "b2")
	w.state(3, 3)

	now := c.ask("bob", "now", "wait=0")
	assert.Equal(t, []any{http.StatusTooManyRequests, "5"}, []any{now.StatusCode, now.Header.Get("Retry-After")})
	assert.Equal(t, "the model is busy", body(t, now))
	assert.Equal(t, http.StatusBadRequest, a.ask("", "?").StatusCode)
	assert.Equal(t, http.StatusBadRequest, a.ask(strings.Repeat("x", 200), "?").StatusCode)

	close(thinks.end)
	assert.Equal(t, "text well,; text done;", body(t, bob1))
	bob2 := w.next("b2") // he holds nothing, and ann has two
	close(bob2.end)
	assert.Equal(t, "queued 1; text well,; text done;", body(t, second))
	w.state(2, 2)
	mine := c.ask("ann", "now", "wait=0")
	assert.Equal(t, "others come first", body(t, mine))

	close(ann1.end)
	ann3 := w.next("3")
	close(ann2.end)
	ann4 := w.next("4")
	atLimit := c.ask("ann", "now", "wait=0")
	assert.Equal(t, "you have as many answers at once as you may", body(t, atLimit))

	// On SIGTERM, those who wait are told to ask again at once, answers are completed, and nothing stays in Redis.
	fifth := c.ask("ann", "5")
	w.state(2, 1)
	c.stop()
	assert.Equal(t, "queued 1; error ask again;", body(t, fifth))
	assert.Equal(t, http.StatusServiceUnavailable, c.ask("bob", "b3").StatusCode)
	close(ann3.end)
	close(ann4.end)
	assert.Equal(t, "queued 1; text well,; text done;", body(t, third))
	assert.Equal(t, "queued 2; text well,; text done;", body(t, fourth))
	require.NoError(t, <-c.end)
	w.state(0, 0)
}
