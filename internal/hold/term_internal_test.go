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
