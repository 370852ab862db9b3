package main

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

func TestReleaseTakesTheLockAndSaysFromWhomAndWhoHasItNow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := onLock(t, s, fairlock.Config{Name: "first"}).Mutex("x y")
	lease := locked(t, m)
	next := onLock(t, s, fairlock.Config{Name: "second"}).Mutex("x y")
	granted := make(chan *fairlock.Lease, 1)
	go func() {
		lease, err := next.Lock(t.Context())
		assert.NoError(t, err)
		granted <- lease
	}()
	waiting(t, m, 1)
	r := call(t, serverURL(s), "release", "x y", "--force", "--yes")
	second := <-granted
	now := strconv.FormatUint(second.Fence(), 10)
	require.Equal(t, result{out: `mutex "x y" was taken from first (fence ` + strconv.FormatUint(lease.Fence(), 10) +
		"); now held by second (fence " + now + "); its fence is " + now + "\n"}, r)
	require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)

	r = call(t, serverURL(s), "release", "x y", "--force", "--yes")
	raised := state(t, m).Fence
	require.Greater(t, raised, second.Fence())
	require.Equal(t, result{out: `mutex "x y" was taken from second (fence ` + now + "); nobody has it now; its fence is " +
		strconv.FormatUint(raised, 10) + "\n"}, r)
	require.ErrorIs(t, second.Unlock(t.Context()), fairlock.ErrLost)

	require.Equal(t, result{out: `mutex "x y" is not held; nothing was done` + "\n"}, call(t, serverURL(s), "release", "x y", "--force", "--yes"))
	require.Equal(t, raised, state(t, m).Fence)
	onlyFences(t, s.Client())
}

func TestReleaseOfEveryKindAsJSON(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := onLock(t, s, fairlock.Config{Name: "host"})
	var held []*fairlock.Lease
	keep := func(lease *fairlock.Lease, err error) {
		t.Helper()
		require.NoError(t, err)
		held = append(held, lease)
	}
	keep(c.Mutex("x").Lock(t.Context()))
	keep(c.RWMutex("x").Lock(t.Context()))
	for range 3 {
		keep(c.RWMutex("y").RLock(t.Context()))
		keep(c.Semaphore("x", 7).Acquire(t.Context(), 2))
	}
	for _, words := range []string{"x", "x --kind mutex", "x --kind rw", "y --kind rw", "x --kind semaphore", "z"} {
		r := call(t, serverURL(s), append([]string{"release", "--force", "--yes", "--json"}, strings.Fields(words)...)...)
		require.Equal(t, 0, r.code, r.errs)
		type holder struct {
			Client  string
			Fence   uint64
			Permits int
		}
		type lock struct {
			Kind, Name string
			Held       bool
			Fence      *uint64
			Holders    []holder
		}
		var got struct {
			Released      bool
			Before, After lock
		}
		d := json.NewDecoder(strings.NewReader(r.out))
		require.NoError(t, d.Decode(&got), r.out)
		require.Equal(t, 1, strings.Count(r.out, "\n"))
		want := map[string]int{"x": 1, "x --kind mutex": 0, "x --kind rw": 1, "y --kind rw": 3, "x --kind semaphore": 3, "z": 0}[words]
		require.Equal(t, want > 0, got.Released, words)
		require.Len(t, got.Before.Holders, want)
		require.Equal(t, want > 0, got.Before.Held)
		require.False(t, got.After.Held)
		for _, h := range got.Before.Holders {
			require.Equal(t, "host", h.Client)
			require.Less(t, h.Fence, *got.After.Fence)
		}
	}
	for _, lease := range held {
		require.ErrorIs(t, lease.Unlock(t.Context()), fairlock.ErrLost)
	}
	onlyFences(t, s.Client())
}

// Who waits for many is served by as many calls as it takes.
func TestReleaseServesAllWhoWait(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := onLock(t, s, fairlock.Config{Name: "host", TTL: time.Minute, WaiterTTL: time.Minute})
	writer, err := c.RWMutex("x").Lock(t.Context())
	require.NoError(t, err)
	const readers = 300
	granted := make(chan *fairlock.Lease, readers)
	for range readers {
		go func() {
			lease, err := c.RWMutex("x").RLock(t.Context())
			assert.NoError(t, err)
			granted <- lease
		}()
	}
	require.Eventually(t, func() bool {
		st, err := c.RWMutex("x").Inspect(t.Context())
		return err == nil && st.Waiting == readers
	}, soon, 5*time.Millisecond)
	start := time.Now()
	r := call(t, serverURL(s), "release", "x", "--kind", "rw", "--force", "--yes")
	require.Contains(t, r.out, "rw x was taken from host (fence "+strconv.FormatUint(writer.Fence(), 10)+"); now held by host (fence ")
	require.Contains(t, r.out, ", 297 others; its fence is ")
	var leases []*fairlock.Lease
	for range readers {
		leases = append(leases, <-granted)
	}
	require.Less(t, time.Since(start), 15*time.Second, "a beat of the waiters has done it, after a third of TTL")
	for _, lease := range leases {
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

func TestReleaseTakesTheLockFromARun(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	dir := t.TempDir()
	holder := begin(t, runScript(t, serverURL(s), dir, "x --ttl 6s", `echo > $D/ready; exec sleep 60`))
	appears(t, filepath.Join(dir, "ready"))
	require.Equal(t, 0, call(t, serverURL(s), "release", "x", "--force", "--yes").code)
	refused(t, holder.wait(), exitLost, "x: lock is lost: no longer the owner; CMD was stopped")
}

func TestReleaseOfWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client()
	require.NoError(t, rdb.Set(t.Context(), "fairlock:{x}:lock", "by hand", 0).Err())
	r := call(t, serverURL(s), "release", "x", "--force", "--yes")
	require.Contains(t, r.out, "mutex x was taken from somebody whose key is not fairlock's (fence 0); nobody has it now")
	require.NoError(t, rdb.LPush(t.Context(), "fairlock:{y}:lock", "a list").Err())
	refused(t, call(t, serverURL(s), "release", "y", "--force", "--yes"), exitUnreachable, "fairlock:{y}:lock")
}
