package view

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lua"
)

// The shape is a promise to scripts: fields are not renamed, nor do they change their meaning.
func TestTheShapeForScripts(t *testing.T) {
	snap := held(3)
	snap.Waiters, snap.Now = snap.Waiters[1:3], noon.In(time.FixedZone("elsewhere", 3600))
	require.Equal(t, `{"kind":"mutex","name":"billing:42","at":"2026-11-20T12:00:00Z","held":true,"used":1,"permits":1,`+
		`"fence":1795175987600000,"resting_ms":null,"holders":[{"client":"web-1","id":"web-1:t001…","fence":1795175987600000,`+
		`"since":"2026-11-20T11:59:47.6Z","held_ms":12400,"lease_left_ms":8100,"permits":1,"writer":false}],"waiting":3,"waiters":[`+
		`{"client":"web-3","id":"web-3:t003…","since":"2026-11-20T11:59:48.800001Z","waiting_ms":11199,"alive":true,"patience_ms":5100,`+
		`"permits":1,"writer":false},{"client":"web-4","id":"web-4:t004…","since":"2026-11-20T11:59:48.800002Z","waiting_ms":11199,`+
		`"alive":false,"patience_ms":-3000,"permits":1,"writer":false}]}`, mutexOf(snap).JSON())
	require.Equal(t, `{"kind":"mutex","name":"x","at":"2026-11-20T12:00:00Z","held":false,"used":0,"permits":1,"fence":null,`+
		`"resting_ms":null,"holders":[],"waiting":0,"waiters":[]}`, lockOf(ID{Mutex, "x"}, lua.Snapshot{Now: noon, Capacity: 1}).JSON())

	rests := held(0)
	rests.Holders[0].Token, rests.Holders[0].Left = lua.Quarantined, 0
	require.Contains(t, mutexOf(rests).JSON(), `"resting_ms":0,"holders":[]`)
	listed := shared(RW, 1, 5)
	listed.Waiters = nil
	require.Contains(t, listed.JSON(), `"permits":null`)
	require.Contains(t, listed.JSON(), `"waiting":5}`, "waiters were not looked at")
}

func TestWhatIsNotKnownIsNull(t *testing.T) {
	snap := held(1)
	snap.Holders[0].Fence, snap.Waiters[0].Ticket = us(noon)+1, lua.Ticket(us(noon)+1)
	snap.Waiters[0].Expires = time.UnixMicro(0)
	shown := mutexOf(snap).JSON()
	require.Contains(t, shown, `"since":null,"held_ms":null`)
	require.Contains(t, shown, `"since":null,"waiting_ms":null,"alive":false,"patience_ms":null`)
}

func TestNamesSurviveJSONAndDoNotControlATerminal(t *testing.T) {
	odd := []string{"<&>", "\u009b31m", "\u202eevil", "\U000e0001tag", "\u2028", "a\x7fb", `"\`}
	for _, name := range append(odd, names...) {
		l := mutexOf(held(0))
		l.Name = name
		text := l.JSON()
		require.False(t, hidden(text), "%q", text)
		var d struct {
			Name   string `json:"name"`
			Base64 []byte `json:"name_base64"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &d), text)
		if d.Base64 != nil {
			require.Equal(t, name, string(d.Base64))
			require.Contains(t, text, base64.StdEncoding.EncodeToString([]byte(name)))
		} else {
			require.Equal(t, name, d.Name)
		}
	}
}

func hidden(text string) bool {
	for _, r := range text {
		if hides(r) {
			return true
		}
	}
	return false
}

func TestAnArrayHasALockOnEachLine(t *testing.T) {
	a, b := mutexOf(held(0)), shared(Semaphore, 1, 0)
	require.Equal(t, "[]\n", JSON(nil))
	require.Equal(t, "[\n"+a.JSON()+",\n"+b.JSON()+"\n]\n", JSON([]Lock{a, b}))
}
