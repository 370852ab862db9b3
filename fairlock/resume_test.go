package fairlock_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// A handle of another kind of lock, or of nothing, is bad input.
func TestResume_Handles(t *testing.T) {
	bubble(t, func(t *testing.T, s *fairlocktest.Server) {
		client := s.Client(fairlock.Config{Name: "c"})
		mutex, sem := hold(t, client.Mutex("x").Lock), hold(t, permits(client.Semaphore("x", 2), 1))
		sent := record(client)
		for _, handle := range []fairlock.Handle{"", "x", fairlock.Handle(mutex.Token().Text()), sem.Handle(),
			mutex.Handle() + "x", "c:1.2/3"} {
			_, err := client.Mutex("x").Resume(t.Context(), handle)
			require.ErrorIs(t, err, fairlock.ErrInvalid, "%v", handle)
			require.NotContains(t, err.Error(), mutex.Token().Text()[20:])
		}
		_, err := client.Semaphore("x", 2).Resume(t.Context(), mutex.Handle())
		require.ErrorIs(t, err, fairlock.ErrInvalid)
		assert.Empty(t, sent.requests())
		h := s.Mutex("x").State().Holders[0]
		assert.EqualValues(t, fmt.Sprintf("%s/%d", h.Token.Text(), h.Fence), mutex.Handle())

		secret := string(mutex.Handle())[8:30]
		for _, text := range []string{fmt.Sprint(mutex.Handle()), fmt.Sprintf("%v %s %q %x %#v", mutex.Handle(),
			mutex.Handle(), mutex.Handle(), mutex.Handle(), mutex.Handle())} {
			assert.NotContains(t, text, secret)
			assert.Contains(t, text, "c:")
		}
	})
}
