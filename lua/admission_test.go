package lua_test

import (
	"strings"
	"testing"
)

// admitting are the steps that find a lock vacant and have to admit, of a party that neither holds nor waits. Each
// scenario of eachAdmitting is run with each in the place of ADMIT.
var admitting = []string{"release z", "leave z", "force", "acquire z try", "heartbeat z", "acquire z; leave z"}

func eachAdmitting(steps ...scenario) (all []scenario) {
	for _, s := range steps {
		for _, admit := range admitting {
			all = append(all, scenario{s.name + ": " + admit, strings.ReplaceAll(s.steps, "ADMIT", admit)})
		}
	}
	return all
}

// The head is granted a vacant lock by whatever script runs next, and no other waiter is. Only an expired head is dropped,
// and only then. TestModel_RandomSteps compares what each request gets with the model.
//
//fairlock:promise Only the head: is granted; it is dropped only if it has expired and the lock is vacant
func TestAdmission_OnlyTheHead(t *testing.T) {
	scenarios(t, oneHolder, eachAdmitting(
		scenario{"in order", `
			acquire a ttl 10m; acquire b c d; after 11m; ADMIT; inspect -> b | c d; release z
			heartbeat b c d -> holding, queued, queued; after 35m; ADMIT; inspect -> c | d`},
		scenario{"expired heads are dropped", `
			acquire a ttl 10m; acquire b c wait 5m; acquire d; acquire e wait 5m; acquire f wait 90m; after 11m
			ADMIT; inspect -> d | e f    # e has expired too, but is not in the way
			after 35m; ADMIT; inspect -> f |`},
	)...)
}
