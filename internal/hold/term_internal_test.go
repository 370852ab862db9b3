package hold

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/clock"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/task"
)

// A renewal is due when a third of what is left has passed, and at least a thirtieth of TTL after the last one.
func TestTerm_Planned(t *testing.T) {
	const ttl = 6 * time.Second
	now := time.Now()
	for left, want := range map[time.Duration]time.Duration{ttl: ttl / 3, ttl / 10: ttl / 30, ttl / 60: ttl / 30} {
		assert.Equal(t, now.Add(want), term{ttl: ttl, deadline: now.Add(left)}.planned(now).renewAt, left)
	}
}

// The first renewal after a handoff is due half a second after it, or after a third of the remaining time, if that is
// sooner.
func TestTerm_AfterHandoff(t *testing.T) {
	now := time.Now()
	for left, want := range map[time.Duration]time.Duration{
		6 * time.Second: 500 * time.Millisecond, 1500 * time.Millisecond: 500 * time.Millisecond,
		600 * time.Millisecond: 200 * time.Millisecond,
	} {
		lease := term{ttl: 10 * time.Second, deadline: now.Add(left)}.planned(now).afterHandoff(now)
		assert.Equal(t, now.Add(want), lease.renewAt, left)
	}
}

// Something is due exactly when its time has come: first the renewal, then the end.
func TestTerm_Due(t *testing.T) {
	type due struct {
		what action
		at   time.Duration
	}
	begin := time.Now()
	at := begin.Add
	lease := term{deadline: at(9), renewAt: at(3)}
	for now, want := range map[time.Duration]due{
		0: {nothing, 3}, 2: {nothing, 3}, 3: {renewal, 3}, 8: {renewal, 8}, 9: {expiry, 9}, 10: {expiry, 10},
	} {
		what, when := lease.due(at(now))
		assert.Equal(t, want, due{what, when.Sub(begin)}, now)
	}
	what, when := term{deadline: at(9), renewAt: at(12)}.due(at(0))
	assert.Equal(t, due{nothing, 9}, due{what, when.Sub(begin)}, "the end comes before the next renewal")
}

// A lease begins with a handoff while a sixth of the smaller of TTL and WaiterTTL is left of its trusted time. With a
// reply, it begins while any is left.
func TestBegin_LeftOfTheGrant(t *testing.T) {
	const ttl, given = 12 * time.Second, 6*time.Second + 122*time.Millisecond // which is the safety margin
	now := time.Now()
	for waiterTTL, least := range map[time.Duration]time.Duration{6 * time.Second: time.Second,
		time.Minute: 2 * time.Second} {
		for left, begins := range map[time.Duration][]bool{least: {true, true}, least - 1: {true, false}, 1: {true, false},
			0: {false, false}} {
			for i, handoff := range []bool{false, true} {
				env := Env{Tasks: task.NewGroup(), Clock: clock.NewFake(now), TTL: ttl, WaiterTTL: waiterTTL}
				h, err := Begin(&env, Grant{Grant: script.Grant{
					Given: given, Sent: now.Add(left - 6*time.Second), Handoff: handoff,
				}})
				if begins[i] {
					assert.Equal(t, now.Add(left), h.Deadline())
				} else {
					assert.ErrorIs(t, err, errs.Expired)
				}
			}
		}
	}
}
