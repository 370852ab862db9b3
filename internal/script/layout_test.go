package script_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/fairlock/fairlock-go/internal/script"
)

// twoReleases sends some requests with the scripts of another release of the library, as a fleet does that is being upgraded.
type twoReleases struct {
	*redis.Client
	other  map[string]string // the text of each script by the hash of today's
	random *rand.Rand
}

func (r twoReleases) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if r.random.IntN(2) == 0 {
		return r.Eval(ctx, r.other[sha], keys, args...)
	}
	return r.Client.EvalSha(ctx, sha, keys, args...)
}

// attempt lets a machine fail without failing the test.
type attempt struct{ *testing.T }

type failure string

func (attempt) Errorf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (attempt) FailNow()                          { panic(failure("failed")) }
func (attempt) Logf(string, ...any)               {}

// try runs a scenario with two releases, and returns why it failed; "" if it did not.
func try(t *testing.T, k kind, steps string, seed uint64, other map[string]string) (failed string) {
	t.Helper()
	defer func() {
		if why := recover(); why != nil {
			failed = string(why.(failure))
		}
	}()
	m := newMachine(attempt{t}, memory(t), k)
	m.user = twoReleases{m.rdb, other, rand.New(rand.NewPCG(seed, 0))}
	m.run(steps)
	return ""
}

// frozen are changes of what is in Redis, or of what all clients have to do alike: another release cannot make them without a
// new layout (docs/upgrading.md).
var frozen = []struct {
	name     string
	old, new string
	kind     kind
}{
	{"the next number", "last = math.max(now, last + 1)", "last = math.max(now, last + 2)", mutex},
	{"text of the number", "text_of(last) .. ' ' .. text_of(clock)", "text_of(clock) .. ' ' .. text_of(last)", mutex},
	{"text of the lock", "call('SET', lock, token .. ' ' .. given,", "call('SET', lock, given .. ' ' .. token,", mutex},
	{"notification", "text = fence .. ' ' .. ms", "text = ms .. ' ' .. fence", mutex},
	{"the second of the queue's clock", "math.max(now - at, 0), 1000000)", "math.max(now - at, 0), 2000000)", mutex},
	{"when a waiter is dropped", "text_of(clock + 999), 'LIMIT'", "text_of(clock + 60000000), 'LIMIT'", mutex},
	{"tombstones", "call('ZSCORE', tombstones, token)", "call('ZSCORE', tombstones, string.sub(token, -14))", mutex},
	{"life of the queue", "KEPT = 660000", "KEPT = 360000", mutex},
	{"records of holders", "token, given, granted(", "token, '1 ' .. given, granted(", semaphore(1)},
	{"loss of permits", "(used > 0) == (call('ZCARD', permits) > 0)", "used >= 0", semaphore(1)},
}

// A change of what is frozen is found when two releases of the scripts share a lock; another release that changes nothing of
// it is not.
//
//fairlock:promise Two versions share a lock: a change of what an earlier version relies on is found by a test
func TestLayout_ChangeIsFound(t *testing.T) {
	const steps = `
		acquire a ttl 10m; acquire b c d wait 20m; heartbeat b c d wait 20m; stall 5s; heartbeat c d wait 20m; renew a ttl 10m
		acquire e; stall 19m; heartbeat c d e; acquire b; leave e tombstone; acquire e -> busy; release a; after 16m; heartbeat b c d
		after 4m59s; heartbeat c; after 20s; heartbeat c d; force; force; force; force
		acquire f ttl 10m -> granted; acquire g i wait 1h; clock -1m; heartbeat g i wait 1h
		after 11m; heartbeat g; lose; acquire i ticket; acquire g ticket; acquire h try -> busy; stall 2m
		acquire h try -> busy; after 40m; heartbeat g i; after 21m; heartbeat g i; release g; release i; acquire j k ttl 10m; release j
		release k; acquire l ttl 10m; acquire m wait 630s; after 601s; acquire n try; heartbeat m; release m`
	const permits = steps + "; acquire o p q; evict permits; release p; acquire r try -> busy; heartbeat q"
	texts := map[string]string{mutex.name: steps, semaphore(1).name: permits}
	other := func(old, new string) map[string]string {
		changed := map[string]string{}
		for hash, text := range script.Texts() {
			changed[hash] = strings.ReplaceAll(text, old, new) + "\n-- of another release"
		}
		return changed
	}
	for name, steps := range texts {
		for seed := range uint64(5) {
			k := map[string]kind{mutex.name: mutex, semaphore(1).name: semaphore(1)}[name]
			assert.Empty(t, try(t, k, steps, seed, other("", "")), "nothing is changed")
		}
	}
	for _, change := range frozen {
		t.Run(change.name, func(t *testing.T) {
			t.Parallel()
			found := false
			for seed := uint64(0); seed < 20 && !found; seed++ {
				found = try(t, change.kind, texts[change.kind.name], seed, other(change.old, change.new)) != ""
			}
			assert.True(t, found)
		})
	}
}
