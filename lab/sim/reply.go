package sim

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fairlock/fairlock-go/internal/model"
)

// retryAfter stands for the time after which another request can help.
const retryAfter = "retry_after"

func wordsOfAcquire(r model.Reply) (reply []string, retry int64) {
	state := cmp.Or(r.Queue, model.Blocked)
	switch r.Outcome {
	case model.Granted:
		return words([]any{r.Outcome, r.Fence, state}), 0
	case model.Queued:
		return words([]any{r.Outcome, r.Ticket, r.Position, r.Last, retryAfter, r.Holder}), r.RetryAfter
	case model.Full:
		return words([]any{r.Outcome, r.Position}), 0
	case model.Resized:
		return words([]any{r.Outcome, r.Permits}), 0
	default:
		return words([]any{r.Outcome, state, retryAfter, r.Holder}), r.RetryAfter
	}
}

func wordsOfHeartbeat(r model.HeartbeatReply) (reply []string, retry int64) {
	letters := map[model.WaiterState]string{model.NotQueued: "n", model.StillQueued: "q", model.Holding: "h"}
	var states strings.Builder
	for _, state := range r.States {
		states.WriteString(letters[state])
	}
	return words([]any{r.Last, retryAfter, states.String()}), r.RetryAfter
}

func wordsOfHandoff(h model.Handoff) []string {
	reply := []any{map[bool]int{true: 1}[h.Released], h.Queue}
	for _, g := range h.Grants {
		reply = append(reply, g.Token, g.Fence, g.Given/model.Millisecond)
	}
	return words(reply)
}

// sameReply compares a reply, as it is sent, with that of the model, if the model has one. An error is none.
func sameReply(sent string, want []string, retry int64) bool {
	if len(want) == 0 {
		return true
	}
	var got []string
	lines := strings.Split(sent, "\r\n")
	for i := 0; i < len(lines); i++ {
		switch {
		case strings.HasPrefix(lines[i], "$") && i+1 < len(lines):
			i++
			got = append(got, strings.Fields(lines[i])...)
		case strings.HasPrefix(lines[i], ":"):
			got = append(got, lines[i][1:])
		}
	}
	for i := range min(len(want), len(got)) {
		if want[i] != retryAfter {
			continue
		}
		// Whole milliseconds, and one more, so that what has to expire has. In the model the time is rounded down to a µs,
		// and the end of a mutex's lease up.
		at := numbers(got[i])[0] * model.Millisecond
		if retry < 0 && at < 0 || retry == 0 && at == 0 || at > retry-2 && at <= retry+2*model.Millisecond {
			got[i] = retryAfter
		}
	}
	for _, reply := range [][]string{want, got} { // to a client both say that another call is not needed
		if i := slices.Index(reply, string(model.Empty)); i >= 0 {
			reply[i] = string(model.Blocked)
		}
	}
	return slices.Equal(want, got)
}
