//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// asProgram has the test binary be the program.
const asProgram = "FAIRLOCK_EXAMPLE_FARM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// world is what the workers have in common.
type world struct {
	t        *testing.T
	server   *redistest.Server
	boss     *worker // that adds jobs
	renderer string
	begun    chan running
}

// running is a job that is rendered. It ends when something is sent to end.
type running struct {
	job
	end chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, server: redistest.Start(t), begun: make(chan running, 100)}
	m := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // else nobody notices that its worker has died
		now := running{end: make(chan struct{}, 1)}
		if !assert.NoError(t, json.Unmarshal(text, &now.job)) {
			return
		}
		w.begun <- now
		select {
		case <-now.end:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(m.Close)
	w.renderer = m.URL
	rdb := w.server.Client()
	locks, err := fairlock.New(rdb, fairlock.Config{Name: "operator"})
	require.NoError(t, err)
	t.Cleanup(func() { locks.Close() })
	w.boss = newWorker("boss", rdb, locks, nil)
	return w
}

func (w *world) start(name string) *exec.Cmd {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), os.Args[0], "-name", name, "-renderer", w.renderer)
	cmd.Env = append(os.Environ(), asProgram+"=1", "FAIRLOCK_REDIS=unix://"+w.server.Addr())
	cmd.Stderr = w.t.Output()
	require.NoError(w.t, cmd.Start())
	w.t.Cleanup(func() { _ = cmd.Wait() }) // killed by the end of the test's ctx, unless the test has ended it
	return cmd
}

func (w *world) add(customer string, n, cores int) {
	w.t.Helper()
	for i := range n {
		require.NoError(w.t, w.boss.add(w.t.Context(), job{i + 1, customer, cores}))
	}
}

// next returns the job that begins next.
func (w *world) next(customer string) running {
	w.t.Helper()
	select {
	case now := <-w.begun:
		require.Equal(w.t, customer, now.Customer)
		return now
	case <-time.After(time.Minute):
		require.Fail(w.t, "no job begins", customer)
		return running{}
	}
}

// state waits until so many cores are in use, and so many jobs that were taken wait.
func (w *world) state(used, waiting int) {
	w.t.Helper()
	operator, farm := admin.New(w.server.Client(), ""), fairlock.ID{Kind: fairlock.KindKeyedSemaphore, Name: "farm"}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		st, err := operator.Inspect(w.t.Context(), farm, 1, 1)
		require.NoError(w.t, err)
		if st.Used == used && st.Waiting == waiting {
			return
		}
		require.True(w.t, time.Now().Before(deadline), "%d are in use, %d wait", st.Used, st.Waiting)
	}
}

// Cases 1 and 5 of keyed semaphores, with processes: three workers share the cores. A customer with many jobs has no
// more than its limit. One that comes later is next, before the others' backlog, and a wide job gets its cores.
//
//fairlock:promise Limits of a keyed semaphore
//fairlock:promise Turns between keys
func TestFarm_Turns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 3 {
		w.start(fmt.Sprint("w", i))
	}
	w.add("ann", 30, 1)
	var ann []running
	for range ofCustomer {
		ann = append(ann, w.next("ann"))
	}
	w.state(ofCustomer, 3*ahead-ofCustomer)
	w.add("bob", 1, 2)
	bob := w.next("bob") // at once: ann is at its limit, and two cores are free
	w.add("carl", 1, 4)
	w.state(cores, 3*ahead-ofCustomer+1)
	for i := range 4 {
		w.state(cores-i, 3*ahead-ofCustomer+1+i)
		ann[i].end <- struct{}{} // carl's job is next: none of ann's backlog passes it
	}
	carl := w.next("carl")
	w.state(cores, 3*ahead-2)
	bob.end <- struct{}{}
	for range 2 {
		ann = append(ann, w.next("ann")) // it has the cores of nobody else
	}
	carl.end <- struct{}{}
	for range 2 {
		ann = append(ann, w.next("ann"))
	}
	w.state(ofCustomer, 3*ahead-ofCustomer)
	for begun := 30 - len(ann); len(ann) > 0; ann = ann[1:] {
		if ann[0].end <- struct{}{}; len(ann) <= ofCustomer && begun > 0 {
			ann, begun = append(ann, w.next("ann")), begun-1
		}
	}
	w.state(0, 0)
	assert.Empty(t, w.server.Client().LRange(t.Context(), failed, 0, -1).Val())
}

// Case 8 of keyed semaphores, with processes: a worker is killed that has jobs of many customers, running and waiting.
// The others go on when its leases have ended. Its jobs are done when it starts again, and one that is stopped puts its
// own back.
//
//fairlock:fault A client is killed that has holders and waiters of many keys of a keyed semaphore
func TestFarm_KilledWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dies := w.start("dies")
	for i := range 12 {
		w.add(fmt.Sprint("c", i), 2, 2)
	}
	for range cores / 2 {
		<-w.begun
	}
	w.state(cores, 24-cores/2)
	other := w.start("other")
	require.NoError(t, dies.Process.Kill())
	_ = dies.Wait()
	w.add("bob", 1, 1)
	bob := w.next("bob") // the dead worker's waiters are dropped, and its leases are over
	w.state(1, 0)
	bob.end <- struct{}{}
	w.state(0, 0)

	w.start("dies")
	done := map[string]bool{}
	for len(done) < 24 {
		now := <-w.begun
		done[fmt.Sprint(now.Customer, now.ID)] = true
		if other.ProcessState == nil { // others go on while this one is stopped
			require.NoError(t, other.Process.Signal(syscall.SIGTERM))
			require.NoError(t, other.Wait())
		}
		now.end <- struct{}{}
	}
	go func() { // jobs that were put back while they ran begin again
		for {
			select {
			case now := <-w.begun:
				now.end <- struct{}{}
			case <-t.Context().Done():
				return
			}
		}
	}()
	w.state(0, 0)
}
