package lua_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/model"
)

// What the random steps have found, as named tests: steps to the scripts and to the model, which say the same.

// modelled runs a test in memory with the test's clock, from a machine without history.
func modelled(t *testing.T, kind string, test func(m *machine)) {
	t.Helper()
	t.Parallel()
	for _, k := range lockKinds() {
		if k.name == kind {
			test(newMachine(t, memory(t), k))
		}
	}
}

// The hash of holders was made for a lease and lasted long enough for the waiter's TTL: it was not extended. The queue
// was new and got the longer time. A waiter that sent no heartbeat for a little more than its TTL came back to a queue
// without a record of the capacity and of the weight it asks for: it waited for ever, or got only one permit.
func TestModel_WantsAreKeptAsLongAsTickets(t *testing.T) {
	modelled(t, "semaphore", func(m *machine) {
		holder, waiter := m.party(3, 3), m.party(3, 2)
		m.ask(holder, time.Second, waiterTTL, 0, false)
		m.ask(waiter, time.Second, 1400*time.Millisecond, 0, false)
		m.pass(m.clock + 18e5)
		m.heartbeat(ttl, waiterTTL, waiter) // it is admitted, for two permits
		m.inspect(100)
		third := m.party(3, 2)
		require.Equal(t, model.Queued, m.ask(third, ttl, waiterTTL, 0, false))
	})
}

// Redis forgets a queue in which everybody has been silent, while others hold permits. What its waiters wanted goes too
// or the hash of holders grows with everyone who crashes while waiting, for as long as somebody holds any.
func TestModel_WantsAreForgottenWithTheQueue(t *testing.T) {
	modelled(t, "semaphore", func(m *machine) {
		one, other, waiter := m.party(3, 1), m.party(3, 1), m.party(3, 3)
		m.ask(one, time.Hour, waiterTTL, 0, false)
		m.ask(waiter, time.Hour, time.Second, 0, false)
		m.pass(m.clock + 2e6)
		m.ask(other, time.Hour, waiterTTL, 0, false)
		m.release(one) // somebody holds a permit at any time
		require.NotContains(t, m.rdb.HGetAll(t.Context(), m.kind.keys.Wants).Val(), waiter.token.Text())
	})
}

func TestModel_TicketsRiseAfterLossOfData(t *testing.T) {
	modelled(t, "semaphore", func(m *machine) {
		holder, waiter, late := m.party(3, 3), m.party(3, 2), m.party(3, 1)
		m.ask(holder, ttl, waiterTTL, 0, false)
		m.ask(waiter, ttl, waiterTTL, 0, false)
		m.lose(-time.Hour)
		m.ask(waiter, ttl, waiterTTL, 0, true)
		m.leave(waiter, ttl, 0)
		m.ask(late, ttl, waiterTTL, 0, false)
		require.Greater(t, late.ticket.redis, waiter.ticket.redis)
	})
}
