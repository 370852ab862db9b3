package fairlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// An Inspector sees of a lock of each kind what a Client sees, and lists no more than it is told.
func TestInspector_SeesWhatAClientSees(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		c, rdb := s.Client(fairlock.Config{Namespace: "own"}), s.Link().Redis()
		locks := map[fairlock.Kind]fairlocktest.Lock{
			fairlock.KindMutex: s.Mutex("x"), fairlock.KindSemaphore: s.Semaphore("x", 1), fairlock.KindRWMutex: s.RWMutex("x"),
		}
		views := map[fairlock.Kind]interface {
			Inspect(context.Context) (fairlock.State, error)
		}{
			fairlock.KindMutex: c.Mutex("x"), fairlock.KindSemaphore: c.Semaphore("x", 1), fairlock.KindRWMutex: c.RWMutex("x"),
		}
		for kind, l := range locks {
			l = l.In("own")
			defer unlock(t, l.HoldAs("holder-"+string(kind)))
			l.CrashQueued("waiter", time.Minute)
			l.CrashQueued("waiter", time.Minute)
			want, err := views[kind].Inspect(t.Context())
			require.NoError(t, err)
			have, err := fairlock.NewInspector(rdb, "own").Inspect(t.Context(), fairlock.ID{Kind: kind, Name: "x"}, 2, 1)
			require.NoError(t, err)
			require.Equal(t, "holder-"+string(kind), have.Holders[0].Client)
			want.Waiters = want.Waiters[:1]
			assert.Equal(t, want, have)
		}
		have, err := fairlock.NewInspector(rdb, "").Inspect(t.Context(), fairlock.ID{Kind: fairlock.KindMutex, Name: "x"}, 0,
			0)
		require.NoError(t, err)
		assert.Zero(t, have.Used, "the default namespace is another one")

		// There is a limit of holders, and one of waiters, also if the waiters have to be read once more.
		for i := range 3 {
			defer unlock(t, s.Semaphore("y", 3).HoldAs(fmt.Sprint("holder-", i)))
		}
		for range 3 {
			s.Semaphore("y", 3).CrashQueued("waiter", time.Minute)
		}
		for _, limits := range [][2]int{{2, 1}, {1, 2}, {0, 3}, {3, 0}} {
			have, err := fairlock.NewInspector(rdb, "").Inspect(t.Context(),
				fairlock.ID{Kind: fairlock.KindSemaphore, Name: "y"}, limits[0], limits[1])
			require.NoError(t, err)
			assert.Len(t, have.Holders, limits[0])
			assert.Len(t, have.Waiters, limits[1])
			assert.Equal(t, []int{3, 3}, []int{have.Used, have.Waiting})
		}
	})
}

func TestInspector_BadInputSendsNothing(t *testing.T) {
	for field, bad := range map[string]struct {
		namespace string
		id        fairlock.ID
		holders   int
		waiters   int
	}{
		"Namespace": {"{", fairlock.ID{Kind: fairlock.KindMutex, Name: "x"}, 1, 1},
		"name":      {"", fairlock.ID{Kind: fairlock.KindMutex, Name: strings.Repeat("x", 1025)}, 1, 1},
		"Kind":      {"", fairlock.ID{Kind: "rw", Name: "x"}, 1, 1},
		"holders":   {"", fairlock.ID{Kind: fairlock.KindMutex, Name: "x"}, 1001, 1},
		"waiters":   {"", fairlock.ID{Kind: fairlock.KindMutex, Name: "x"}, 1, -1},
	} {
		_, err := fairlock.NewInspector(silent{t: t}, bad.namespace).Inspect(t.Context(), bad.id, bad.holders, bad.waiters)
		var e *fairlock.FieldError
		require.ErrorAs(t, err, &e, field)
		assert.Equal(t, field, e.Field)
	}
}
