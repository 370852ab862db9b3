package proxy_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/internal/proxy"
)

const soon = 10 * time.Second

// server answers everything with itself, and remembers it.
type server struct {
	addr string

	mu   sync.Mutex
	cond *sync.Cond
	got  bytes.Buffer // guarded by mu
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{addr: filepath.Join(t.TempDir(), "s")}
	s.cond = sync.NewCond(&s.mu)
	listener, err := net.Listen("unix", s.addr)
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	all.Go(func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			all.Go(func() { s.serve(conn) })
		}
	})
	return s
}

func (s *server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	buffer := make([]byte, 1024)
	for n, err := conn.Read(buffer); err == nil; n, err = conn.Read(buffer) {
		s.mu.Lock()
		s.got.Write(buffer[:n])
		s.mu.Unlock()
		s.cond.Broadcast()
		_, _ = conn.Write(buffer[:n])
	}
}

// await waits until it has got so much.
func (s *server) await(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.got.String() != text {
		s.cond.Wait()
	}
}

func (s *server) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

func newProxy(t *testing.T, s *server) *proxy.Proxy {
	t.Helper()
	p, err := proxy.New("unix", s.addr)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := conn.Write([]byte(text))
	require.NoError(t, err)
}

func hear(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(soon)))
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	require.NoError(t, err)
	assert.Equal(t, text, string(got))
}

// ends shows that the connection ends, and nothing is heard before.
func ends(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NotErrorIs(t, nothing(t, conn, soon), os.ErrDeadlineExceeded)
}

// silent shows that for a while nothing is heard, nor does the connection end.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	require.ErrorIs(t, nothing(t, conn, 50*time.Millisecond), os.ErrDeadlineExceeded)
}

// nothing shows that nothing is heard for so long, and returns why it was not.
func nothing(t *testing.T, conn net.Conn, long time.Duration) error {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(long)))
	n, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.Zero(t, n)
	return err
}

func TestWithoutFaultsEverythingPasses(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	conn := dial(t, p)
	send(t, conn, "one")
	hear(t, conn, "one")
	send(t, conn, "two")
	hear(t, conn, "two")
	assert.Zero(t, p.Counts())
}

func TestALostMessageTakesItsConnectionAlong(t *testing.T) {
	for name, faults := range map[string]proxy.Faults{"request": {Requests: 1}, "reply": {Replies: 1}} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			p := newProxy(t, s)
			sent := 0
			for c := p.Counts(); c.Reset == 0 || c.Silent == 0; {
				p.Set(faults)
				conn := dial(t, p)
				send(t, conn, "0") // of which no part can be left over
				sent++
				require.Eventually(t, func() bool {
					now := p.Counts()
					return now.Requests+now.Replies == sent
				}, soon, time.Millisecond)
				before := c
				c = p.Counts()
				require.Equal(t, 1, c.Reset+c.Silent-before.Reset-before.Silent)
				if c.Reset > before.Reset {
					ends(t, conn)
					continue
				}
				p.Set(proxy.Faults{})
				send(t, conn, "1")
				silent(t, conn) // what follows is lost, too
			}
			if name == "request" {
				assert.Empty(t, s.all())
			} else {
				assert.Len(t, s.all(), sent, "the requests were not lost")
			}
		})
	}
}

func TestPartOfALostMessageMayArrive(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	p.Set(proxy.Faults{Requests: 1})
	for p.Counts().Torn == 0 {
		conn := dial(t, p)
		send(t, conn, "01234567")
		require.Eventually(t, func() bool { return p.Counts().Requests > 0 }, soon, time.Millisecond)
		_ = conn.Close()
	}
	require.Eventually(t, func() bool { return s.all() != "" }, soon, time.Millisecond)
	assert.NotContains(t, s.all(), "7")
}

func TestALateRequestArrivesThoughItsSenderHasGone(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	p.Set(proxy.Faults{Late: 1, Delay: 200 * time.Millisecond})
	conn := dial(t, p)
	send(t, conn, "late")
	require.NoError(t, conn.Close())
	s.await("late")
	assert.Equal(t, 1, p.Counts().Late)
}

func TestRepliesAreSlow(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	p.Set(proxy.Faults{Slow: 100 * time.Millisecond})
	conn := dial(t, p)
	began := time.Now()
	send(t, conn, "slow")
	hear(t, conn, "slow")
	assert.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
}

func TestWhatIsSentWhileItHangsArrivesLater(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	p.Set(proxy.Faults{Hung: true})
	conn := dial(t, p)
	send(t, conn, "later")
	silent(t, conn)
	assert.Empty(t, s.all())
	p.Set(proxy.Faults{})
	hear(t, conn, "later")
}

func TestACutResetsAndRefuses(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	conn := dial(t, p)
	send(t, conn, "before")
	hear(t, conn, "before")
	p.Set(proxy.Faults{Cut: true})
	ends(t, conn)
	ends(t, dial(t, p))
	c := p.Counts()
	assert.Equal(t, 1, c.Reset)
	assert.Equal(t, 1, c.Refused)
	p.Set(proxy.Faults{})
	conn = dial(t, p)
	send(t, conn, "after")
	hear(t, conn, "after")
}

func TestOnlySubscribersAreDeaf(t *testing.T) {
	s := newServer(t)
	p := newProxy(t, s)
	p.Set(proxy.Faults{Deaf: true})
	subscriber, other := dial(t, p), dial(t, p)
	send(t, subscriber, "*2\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n")
	silent(t, subscriber)
	send(t, other, "get")
	hear(t, other, "get")
	require.Eventually(t, func() bool { return p.Counts().Unheard == 1 }, soon, time.Millisecond)
}
