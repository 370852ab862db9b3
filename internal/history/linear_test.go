package history_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/history"
)

// operation is one that a lock executes at a moment of its interval: a grant, a renewal or a release.
type operation struct {
	op           history.Op
	call, weight int
	from, to     int64
}

// held is the state of a lock: the weights of its holders, and how many have been granted it.
type held struct{ weights [5]int }

// The rule finds an order of all operations by trying the earliest one only. A search of all orders finds one in the same
// histories.
//
//fairlock:promise The checker notices
func TestCheck_LinearAsPorcupine(t *testing.T) {
	illegal := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 0))
		capacity := 1 + random.IntN(3)
		run := history.Run{TTL: 100, WaiterTTL: time.Hour, Capacity: map[string]int{"x": capacity}}
		var events []history.Event
		var operations []porcupine.Operation
		calls := 2 + random.IntN(4)
		for call := range calls {
			weight := 1 + random.IntN(capacity)
			moments := make([]int64, 5) // request, granted, renewed, unlock, released
			for i := range moments {
				moments[i] = int64(100*call/2) + 1 + random.Int64N(150)
			}
			slices.Sort(moments)
			if random.IntN(2) == 0 { // the reply to a renewal comes after Unlock was called
				moments[2], moments[3] = moments[3], moments[2]
			}
			renewed := moments[2] + random.Int64N(100)
			for i, op := range []history.Op{history.Request, history.Granted, history.Renewed, history.Unlock, history.Released} {
				e := history.Event{At: moments[i], Process: call, Lock: "x", Op: op, Weight: weight}
				switch op {
				case history.Granted:
					e.Token, e.Fence, e.Until = token(call), uint64(call+1), moments[4]+1
				case history.Renewed:
					e.Until = renewed
				}
				events = append(events, e)
			}
			for _, o := range []operation{
				{history.Granted, call, weight, moments[0], moments[1]},
				{history.Renewed, call, weight, max(moments[0], renewed-int64(run.TTL)), moments[2]},
				{history.Released, call, weight, moments[3], moments[4]},
			} {
				operations = append(operations, porcupine.Operation{ClientId: call, Input: o, Call: o.from, Return: o.to})
			}
		}
		model := porcupine.Model{
			Init: func() any { return held{} },
			Step: func(state, input, _ any) (bool, any) {
				s, o := state.(held), input.(operation)
				used := 0
				for i, w := range s.weights {
					used += max(0, w)
					if o.op == history.Granted && (i < o.call && w == 0 || i >= o.call && w != 0) {
						return false, s // not in the order of the fences
					}
				}
				switch o.op {
				case history.Granted:
					s.weights[o.call] = o.weight
					return used+o.weight <= capacity, s
				case history.Released:
					possible := s.weights[o.call] > 0
					s.weights[o.call] = -1
					return possible, s
				default:
					return s.weights[o.call] > 0, s
				}
			},
		}
		want := porcupine.CheckOperations(model, operations)
		found := slices.ContainsFunc(history.Check(events, run).Violations, func(v history.Violation) bool {
			return v.Rule == history.Linear || v.Rule == history.Fences
		})
		require.Equal(t, want, !found, "seed %d: capacity %d, %v", seed, capacity, operations)
		if !want {
			illegal++
		}
	}
	require.Greater(t, illegal, 500)
	require.Less(t, illegal, 2500)
}
