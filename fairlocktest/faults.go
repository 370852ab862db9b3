package fairlocktest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Faults is a set of kinds of fault, for Explore. Sets are combined with | and &^.
type Faults uint

// The kinds of fault. "For a while" is up to ExploreConfig.MaxOutage.
const (
	ServerDown       Faults = 1 << iota // Redis is down for a while, and keeps its data
	DataLoss                            // Redis loses its data
	ClockStep                           // Redis's clock steps forward or back; never back in a run that has DataLoss
	ConnectionCut                       // a client's connections break, and new ones are refused for a while
	ConnectionHang                      // for a while a client's data do not pass, and no connection breaks
	Latency                             // a client's requests and replies are late for a while
	RequestLoss                         // the next request of a client is lost, and its connection breaks
	ReplyLoss                           // Redis executes the next request of a client, and the reply is lost
	NotificationLoss                    // a client receives no notifications for a while
	LeaseExpiry                         // the leases of a lock expire in Redis
	ForcedRelease                       // a lock is released by force
	ClientCrash                         // a client ends at once: it releases nothing
	ClientPause                         // a client sends and receives nothing for a while, and its timers stand still
	end

	// AllFaults has all kinds.
	AllFaults = end - 1

	// OverlapFaults are the kinds that can end a lease in Redis before its client notices. Another client may hold the
	// lock meanwhile. Fences protect a resource from that; see the section "What does not hold" of docs/promises.md.
	OverlapFaults = DataLoss | ClockStep | LeaseExpiry | ForcedRelease | ClientPause
)

var faultNames = [...]string{
	"ServerDown", "DataLoss", "ClockStep", "ConnectionCut", "ConnectionHang", "Latency", "RequestLoss", "ReplyLoss",
	"NotificationLoss", "LeaseExpiry", "ForcedRelease", "ClientCrash", "ClientPause",
}

// String returns the names of the kinds.
func (f Faults) String() string {
	var names []string
	for i, name := range faultNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "|")
}

// fault is one fault of a schedule. All of it is drawn before the run, so that the run cannot change it.
type fault struct {
	at     time.Duration // since the start
	kind   Faults
	target int           // the number of the client or lock, modulo how many there are then
	lasts  time.Duration // of a fault that lasts
	step   time.Duration // of ClockStep
	delays [2]time.Duration
}

// draw returns the schedule of a seed. Each run has about half of the kinds, each with a frequency of its own.
// Otherwise faults of one kind could hide what those of another kind would show.
func draw(cfg ExploreConfig, seed int) (schedule []fault) {
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	var kinds []Faults // each as often as its frequency demands
	for kinds == nil {
		for kind := Faults(1); kind < end; kind <<= 1 {
			in, often := rng.IntN(2) == 0, 1+rng.IntN(8)
			if in && cfg.Faults&kind != 0 {
				kinds = append(kinds, slices.Repeat([]Faults{kind}, often)...)
			}
		}
	}
	// between returns a duration. Short ones are as likely as long ones.
	between := func(low, high time.Duration) time.Duration {
		return time.Duration(float64(high) * math.Pow(float64(low)/float64(high), rng.Float64()))
	}
	most := cfg.MaxOutage
	pause := between(most/30, most/2)
	for at := time.Duration(0); ; {
		if at += 1 + time.Duration(rng.Float64()*2*float64(pause)); at >= cfg.Duration {
			return schedule
		}
		f := fault{
			at: at, kind: kinds[rng.IntN(len(kinds))], target: rng.IntN(math.MaxInt32), lasts: between(most/1000, most),
			step:   between(most/1000, most),
			delays: [2]time.Duration{between(most/4000, most/4), between(most/4000, most/4)},
		}
		if rng.IntN(2) == 0 && !slices.Contains(kinds, DataLoss) {
			f.step = -f.step
		}
		schedule = append(schedule, f)
	}
}

// begin injects a fault. It does nothing if the fault needs a client or a lock and there is none yet.
func (w *World) begin(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.healed {
		return
	}
	w.findLocksLocked()
	switch f.kind {
	case ServerDown, DataLoss, ClockStep:
		w.disturbServerLocked(f)
	case LeaseExpiry, ForcedRelease:
		if len(w.locks) > 0 {
			w.endLeasesLocked(f, w.locks[f.target%len(w.locks)])
		}
	default:
		if living := w.livingLocked(); len(living) > 1 || len(living) == 1 && f.kind != ClientCrash {
			w.disturbClientLocked(f, living[f.target%len(living)])
		}
	}
}

// disturbServerLocked injects a fault of the server.
func (w *World) disturbServerLocked(f fault) {
	s := w.Server
	switch f.kind {
	case ServerDown:
		w.duringLocked(f, "Redis is down", func(n int) {
			if w.down += n; w.down > 0 {
				s.Stop()
			} else {
				s.Start()
			}
		})
	case DataLoss:
		w.record("Redis loses its data")
		s.LoseData()
	case ClockStep:
		w.record("Redis's clock steps by %v", short(f.step))
		s.StepClock(f.step)
	}
}

// endLeasesLocked injects a fault of a lock.
func (w *World) endLeasesLocked(f fault, l Lock) {
	switch f.kind {
	case LeaseExpiry:
		w.record("%v %s: its leases expire in Redis", l.kind, l.name)
		l.Expire()
	case ForcedRelease:
		w.record("%v %s: it is released by force", l.kind, l.name)
		_ = l.forceRelease() // an error: the key is not one of ours
	}
}

// disturbClientLocked injects a fault of a client.
func (w *World) disturbClientLocked(f fault, v *victim) {
	counted := func(n *int) func(int) {
		return func(by int) {
			*n += by
			v.apply()
		}
	}
	switch name := v.Name(); f.kind {
	case ConnectionCut:
		w.duringLocked(f, name+": its connections are cut", counted(&v.cut))
	case ConnectionHang:
		w.duringLocked(f, name+": its connections hang", counted(&v.hung))
	case NotificationLoss:
		w.duringLocked(f, name+": its notifications are lost", counted(&v.lossy))
	case ClientPause:
		w.duringLocked(f, name+": it is paused", counted(&v.paused))
	case Latency:
		what := fmt.Sprintf("%s: its requests take %v longer, the replies %v", name, short(f.delays[0]), short(f.delays[1]))
		w.duringLocked(f, what, func(n int) {
			v.delays[0] += time.Duration(n) * f.delays[0]
			v.delays[1] += time.Duration(n) * f.delays[1]
			v.apply()
		})
	case RequestLoss:
		w.record("%s: its next request is lost", name)
		v.Link.DropRequest()
	case ReplyLoss:
		w.record("%s: the reply to its next request is lost", name)
		v.Link.DropReply()
	case ClientCrash:
		w.record("%s: it crashes", name)
		v.crashed.Store(true)
		v.die(errCrashed)
		w.tally.crashed()
		v.apply()
		w.tasks.Go(v.Crash) // it waits for calls under way
	}
}

// victim is a client that has faults. Its fields are guarded by the World's mu.
type victim struct {
	*Client

	local  *LocalClock
	alive  context.Context // until it crashes
	die    context.CancelCauseFunc
	delays [2]time.Duration // of the link: of a request, of a reply

	cut, hung, paused, lossy int // how many faults of that kind are under way
}

// apply sets the link and the clock as the faults under way demand.
func (v *victim) apply() {
	l := v.Link
	l.set(func() {
		l.cut = v.cut > 0 || v.crashed.Load()
		l.hung = v.hung > 0 || v.paused > 0
		l.dropNotifications = v.lossy > 0
		l.requestDelay, l.replyDelay = v.delays[0], v.delays[1]
		if l.cut {
			l.breakAllLocked()
		}
	})
	if v.paused > 0 {
		v.local.Pause()
	} else {
		v.local.Resume()
	}
}

// findLocksLocked adds the locks that have been used since it was last called, in the order of their keys. A lock whose
// data are lost stays known, so that the faults of a seed do not depend on when it is used again.
func (w *World) findLocksLocked() {
	kinds := map[string]fairlock.Kind{
		"number": fairlock.KindMutex, "sem:number": fairlock.KindSemaphore,
		"key:number": fairlock.KindKeyedSemaphore, "rw:number": fairlock.KindRWMutex,
	}
	for _, key := range w.Server.Miniredis.Keys() {
		namespace, rest, _ := strings.Cut(key, ":{")
		name, last, _ := strings.Cut(rest, "}:")
		if k, ok := kinds[last]; ok {
			l := Lock{server: w.Server, kind: k, namespace: namespace, name: unescape.Replace(name)}
			if !slices.ContainsFunc(w.locks, func(m Lock) bool { return m.namespace == l.namespace && m.id() == l.id() }) {
				w.locks = append(w.locks, l)
			}
		}
	}
}

// unescape reverses what package script does to a lock's name.
var unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// short rounds a duration for a person.
func short(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
