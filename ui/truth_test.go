package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/leader"
	"github.com/fairlock/fairlock-go/ui"
)

// What a user cannot see is "?" on the page, and never 0: of a user that lacks one right, each in turn, and of one that
// lacks all that scripts need. The page says what lacks, and that this is no fault of the server.
func TestHandler_Rights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locks, err := fairlock.New(server.Client(), fairlock.Config{Name: "web-1"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() })
	for i := range 3 {
		_, err := locks.Mutex(fmt.Sprint("m", i)).Lock(t.Context())
		require.NoError(t, err)
	}
	queued := make(chan struct{})
	waits, err := fairlock.New(server.Client(), fairlock.Config{Name: "web-2", Trace: &fairlock.Trace{
		Queued: func(fairlock.QueuedInfo) { close(queued) },
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = waits.Close() })
	go func() { _, _ = waits.Mutex("m0").Lock(t.Context()) }()
	<-queued

	rules := strings.Fields(doctor.RightsIn("fairlock", server.Before7())[1].ACL)
	rules = rules[slices.Index(rules, ">password")+1:]
	show := func(name string, rules []string) (list, lock, unused string) {
		rdb := redis.NewClient(server.User(name, rules...))
		h, err := ui.NewHandler(rdb, ui.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()); require.NoError(t, rdb.Close()) }()
		get := func(target string) string {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
			require.Equal(t, http.StatusOK, w.Code)
			return w.Body.String()
		}
		get("/server")
		return get("/"), get("/lock?kind=mutex&name=m0"), get("/lock?kind=mutex&name=m")
	}
	list, lock, unused := show("all", rules)
	require.Contains(t, text(unused), "not used lately. Did you mean mutex m0 , mutex m1 , mutex m2 ?")
	require.Contains(t, text(list), "complete. in use 3 with waiters 1 oldest wait ")
	require.Contains(t, text(list), "missed renewals 0 server ")
	require.Contains(t, text(lock), "One waits, for ")
	require.NotContains(t, list+lock, "This page cannot read everything")

	blind := 0
	lacking := [][]string{{"-eval_ro", "-evalsha_ro", "-eval", "-evalsha"}}
	for _, rule := range rules {
		if command, ok := strings.CutPrefix(rule, "+"); ok {
			lacking = append(lacking, []string{"-" + command})
		}
	}
	for i, without := range lacking {
		list, lock, unused := show(fmt.Sprint("user", i), append(slices.Clone(rules), without...))
		switch shown := text(list); {
		case strings.Contains(shown, "· complete"):
			require.Contains(t, shown, "in use 3 with waiters 1 oldest wait ", "%v is not needed", without)
		case strings.Contains(shown, "Nothing was read yet"):
			require.Contains(t, shown, "Redis cannot be read: this user lacks "+strings.Replace(without[0], "-", "+", 1))
			require.Contains(t, text(unused), "not used lately. Names like it could not be searched: this user lacks +scan.")
			require.NotContains(t, shown, "missed renewals")
		default:
			blind++
			require.Contains(t, list, `class="fresh bad"`)
			lacks := `read: this user lacks \+(` + strings.ReplaceAll(strings.Join(without, "|"), "-", "") + `)\.`
			require.Regexp(t, `(none of 3 locks could be|1 of 3 locks could not be) `+lacks, shown)
			require.Regexp(t, `in use (\?|2 or more) with waiters \? oldest wait \? missed renewals \? server rights`, shown)
			require.Contains(t, shown, "This page cannot read everything : the user lacks "+strings.Replace(without[0], "-", "+", 1))
			require.Contains(t, shown, "the user of Redis that the page logs in as.")
			require.Contains(t, shown, "m0 mutex unreadable ? ? ? ? ?")
			require.NotContains(t, shown, "The server has")
			require.Regexp(t, "This lock cannot be "+lacks, text(lock))
			require.NotContains(t, text(lock), "waiting 0")
			require.NotContains(t, text(lock), "complete")
			require.Contains(t, lock, `class="fresh bad"`)
		}
		require.NotContains(t, list, "--for look", "nobody can do that here")
	}
	require.Greater(t, blind, 8)
}

// A wrong namespace and a wrong name do not look like health: where the empty list stands, and on the page of a lock
// that nobody uses.
func TestHandler_WrongNames(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{Namespace: "shop"}, func(t *testing.T, s *site) {
		s.redis.Mutex("x").In("shops").HoldAs("web-1")
		s.redis.Mutex("x").In("billing").HoldAs("web-1")
		const wrong = "No locks in this namespace; namespaces with locks: shops, billing."
		require.Contains(t, text(s.get("/")), wrong)
		require.Contains(t, text(s.get("/?q=x")), wrong)
		require.Contains(t, text(s.get("/lock?kind=mutex&name=x")), wrong)
	})
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.redis.Mutex("invoices:export").HoldAs("web-1")
		lease := s.redis.Semaphore("gpu", 1).HoldAs("web-1")
		s.redis.KeyedSemaphore("gpu", 1).Key("a").HoldAs("web-1")
		require.NoError(t, lease.Unlock(t.Context()))
		for name, want := range map[string]string{
			"mutex&name=Invoice:export%20": "Did you mean mutex invoices:export ?",
			"semaphore&name=gpu":           "Did you mean keyed gpu ?",
		} {
			page := s.get("/lock?kind=" + name)
			require.Contains(t, text(page), want)
			require.NotEmpty(t, links(page, "lock"))
		}
		for _, name := range []string{"mutex&name=invoices:export", "keyed&name=gpu", "mutex&name=zzz"} {
			shown := text(s.get("/lock?kind=" + name))
			require.NotContains(t, strings.ToLower(shown), "did you mean")
			require.NotContains(t, shown, "namespaces")
			require.Equal(t, name == "mutex&name=zzz", strings.Contains(shown, "No lock in use has a similar name."))
		}
		require.Contains(t, s.get("/lock?kind=mutex&name=zzz"), `<p class="verdict ">Free, and not used lately`, "not green")
		require.NoError(t, s.redis.Mutex("invoices:export").TakeAs("web-1").Unlock(t.Context()))
		s.redis.KeyedSemaphore("gpu", 1).Key("a").TakeAs("web-1")
		time.Sleep(time.Minute)
		require.NotContains(t, text(s.get("/")), "No locks in this namespace")
	})
}

// Two clients that lock two locks in opposite order are named on the pages of both locks.
func TestHandler_Crossing(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.redis.Mutex("a").HoldAs("web-1")
		s.redis.Mutex("b").HoldAs("web-2")
		s.redis.Mutex("a").CrashQueued("web-2", time.Hour)
		s.get("/")
		require.NotContains(t, text(s.get("/lock?kind=mutex&name=a")), "deadlock")
		s.redis.Mutex("b").CrashQueued("web-1", time.Hour)
		time.Sleep(10 * time.Second)
		s.get("/")
		require.Contains(t, text(s.get("/lock?kind=mutex&name=a")),
			"web-1 holds it and waits for mutex b; web-2 holds that and waits for mutex a.")
		require.Contains(t, text(s.get("/lock?kind=mutex&name=b")),
			"web-2 holds it and waits for mutex a; web-1 holds that and waits for mutex b.")
	})
}

// A key at its limit is seen in the list, and what the next waiter waits for on the page of the lock.
func TestHandler_KeyLimits(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		ctx, cancel := context.WithCancel(t.Context())
		gpu, ended := s.redis.Client(fairlock.Config{Name: "web-1"}).KeyedSemaphore("gpu", 4), make(chan struct{}, 2)
		s.redis.KeyedSemaphore("gpu", 4).Key("a").HoldAs("web-2")
		for key, permits := range map[string]int{"a": 1, "b": 4} {
			go func() {
				_, _ = gpu.Key(key, fairlock.WithKeyLimit(permits)).Acquire(ctx, permits)
				ended <- struct{}{}
			}()
		}
		time.Sleep(time.Second)
		require.Contains(t, text(s.get("/")), "2 (a key at its limit) 999ms")
		shown := text(s.get("/lock?kind=keyed&name=gpu"))
		require.Contains(t, shown,
			"2 wait, the first for 999ms. Key a is at its limit: its first waiter waits for holders of the key. "+
				"The first waiter of key b, which is next, wants 4 permits, and 3 are free.")
		require.Contains(t, shown, "at its limit, limits in use: 1 and none")
		cancel()
		<-ended
		<-ended
	})
}

// Waiters that have expired do not count: in no number, not in the order, nor as the oldest wait. Beside the living it
// says how many they are, and who they were.
func TestHandler_Expired(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.redis.Mutex("dead").CrashHolding("web-4", time.Second)
		for range 300 {
			s.redis.Mutex("dead").CrashQueued("web-3", 3*time.Second)
		}
		time.Sleep(10 * time.Minute)
		s.redis.Mutex("alive").HoldAs("web-1")
		s.redis.Mutex("alive").CrashQueued("web-2", time.Minute)
		time.Sleep(time.Second)
		page := s.get("/")
		require.Equal(t, []string{"lock?kind=mutex&name=alive", "lock?kind=mutex&name=dead"}, links(page, "lock"))
		require.Contains(t, text(page), "in use 1 with waiters 1 oldest wait 999ms")
		require.Contains(t, text(page), "dead mutex free none 0 (300 expired) –")
		shown := text(s.get("/lock?kind=mutex&name=dead"))
		require.Contains(t, shown, "300 expired, dropped by the next requests.")
		require.Contains(t, shown, "waiting 0")
		require.Contains(t, shown, "300 expired, dropped by the next requests: 100 web-3, and 200 that are not listed.")
		require.NotContains(t, shown, "Queue")
	})
}

// Of a process that was granted the lock and killed at once nobody knows that it lives.
func TestHandler_GrantedAndKilled(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.redis.Mutex("m").CrashHolding("web-3", 10*time.Second)
		time.Sleep(2100 * time.Millisecond)
		shown := text(s.get("/lock?kind=mutex&name=m"))
		require.Contains(t, shown, "Held by web-3. Its lease was granted 2.1s ago, every 3.3s.")
		require.NotContains(t, shown, "alive")
		require.NotContains(t, shown, "lives")
	})
}

// Only a semaphore that was resized is called so.
func TestHandler_SetByResize(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		client := s.redis.Client(fairlock.Config{Name: "web-1"})
		lease, err := client.Semaphore("rate", 5, fairlock.WithMinHold(10*time.Second)).Acquire(t.Context(), 5)
		require.NoError(t, err)
		s.redis.Semaphore("rate", 5).CrashQueued("web-2", 3*time.Second)
		time.Sleep(time.Second)
		require.NoError(t, lease.Unlock(t.Context()))
		for range 3 {
			require.NotContains(t, text(s.get("/lock?kind=semaphore&name=rate")), "resize")
			time.Sleep(time.Minute)
		}
		require.NoError(t, admin.New(s.redis.Link().Redis(), "").Resize(t.Context(),
			fairlock.ID{Kind: fairlock.KindSemaphore, Name: "rate"}, 7))
		time.Sleep(time.Minute)
		require.Contains(t, text(s.get("/lock?kind=semaphore&name=rate")), "It has 7 permits, set by resize.")
	})
}

// An election is no incident: its candidates are none of those that wait, however long the leader lives.
func TestHandler_Election(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 3)
		for i := range 3 {
			e := leader.New(s.redis.Client(fairlock.Config{Name: fmt.Sprint("node-", i)}).Client, "leader", leader.Config{})
			go func() {
				_ = e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
				ended <- struct{}{}
			}()
			time.Sleep(time.Second)
		}
		s.redis.Mutex("m").HoldAs("web-1")
		s.redis.Mutex("m").CrashQueued("web-2", time.Hour)
		time.Sleep(time.Minute)
		page := s.get("/")
		require.Equal(t, "lock?kind=mutex&name=m", links(page, "lock")[0], "it waits longest")
		require.Contains(t, text(page), "in use 2 with waiters 1 oldest wait 59.9s")
		require.Regexp(t, `leader mutex leads node-0 1m3s \S+ ago, every 3.3s 0 \(2 candidates\) –`, text(page))
		shown := text(s.get("/lock?kind=mutex&name=leader"))
		require.Contains(t, shown, "node-0 leads. Its lease was renewed ")
		require.Contains(t, shown, "2 candidates: waiting for as long as the leader lives.")
		require.Contains(t, shown, "1 node-1 1m2s candidate, alive")
		cancel()
		for range 3 {
			<-ended
		}
	})
}

// What is said of a lock is true of all its holders: of one whose lease ends last, and of one behind many others.
func TestHandler_ManyHolders(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		pool := s.redis.Semaphore("pool", 200)
		pool.CrashHolding("leaked", time.Hour)
		time.Sleep(time.Second)
		pool.CrashHolding("crashed", 100*time.Second)
		s.redis.Mutex("m").HoldAs("web-1")
		time.Sleep(90 * time.Second)
		for i := range 120 {
			pool.CrashHolding(fmt.Sprint("web-", i), time.Minute)
		}
		s.redis.RWMutex("calm").ReadAs("web-1")
		s.redis.RWMutex("calm").ReadAs("web-2")
		time.Sleep(6 * time.Second)
		page := s.get("/?sort=held")
		shown := text(page)
		require.Contains(t, shown, "in use 3 with waiters 0 oldest wait – missed renewals 1 ")
		require.Contains(t, page, `<div class="bad"><dt>missed renewals</dt>`)
		require.Contains(t, shown,
			"Renewed Waiting Oldest wait pool semaphore 122 of 200 122 of 200 leaked and 121 more 1m37s missed by 1 of 122 0 –")
		require.Contains(t, shown, "calm rwmutex 2 readers web-1 and 1 more 6s none missed 0 –")
		require.Equal(t, "lock?kind=semaphore&name=pool", links(s.get("/"), "lock")[0], "trouble first")

		// The page of the lock has those first that have missed renewals, and then those that have held it longest.
		shown = text(s.get("/lock?kind=semaphore&name=pool"))
		require.Contains(t, shown, "One has missed renewals")
		require.Regexp(t, `Fence crashed 1 permit 1m3.s, .* leaked 1 permit 1m3.s, .* … and 22 more\.`, shown)

		// The filter looks at all of them, and says which it has found.
		page = s.get("/?q=WEB-119")
		require.Len(t, links(page, "lock"), 1)
		require.Contains(t, text(page), "leaked and 121 more, web-119 among them 1m37s")
		require.NotContains(t, text(s.get("/?q=leaked"))+text(s.get("/?q=pool")), "among them")
		require.NotContains(t, text(page), "holders are searched")
	})
}

// Of more holders than are listed, it says what is not known.
func TestHandler_MoreHoldersThanListed(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		one := s.redis.Semaphore("crowd", 2000).CrashHolding("web-0", time.Hour).Text()
		keys := script.KeysOf("semaphore", "fairlock", "crowd")
		for i := range 1000 { // others like it
			other := one[:len(one)-22] + fmt.Sprintf("%021dA", i)
			_, err := s.redis.Miniredis.ZAdd(keys.Part("permits"), float64(time.Now().Add(59*time.Minute).UnixMicro()), other)
			require.NoError(t, err)
			s.redis.Miniredis.HSet(keys.Part("holders"), other, fmt.Sprint(time.Now().UnixMicro()))
		}
		s.redis.Miniredis.HSet(keys.Part("holders"), "used", "1001")
		s.redis.Mutex("m").HoldAs("web-1")
		shown := text(s.get("/"))
		require.Contains(t, shown, "missed renewals 0, 1 unknown")
		require.Regexp(t, `crowd semaphore 1001 of 2000 1001 of 2000 web-0 and others ≥\S+ \? 0 –`, shown)
		shown = text(s.get("/?q=web-1&kind=semaphore"))
		require.Contains(t, shown, "1 lock more may have such a holder: only 1000 holders of each lock are searched.")
		require.NotContains(t, text(s.get("/?q=web-1&kind=mutex")), "holders are searched")
		require.Contains(t, text(s.get("/lock?kind=semaphore&name=crowd")),
			"1001 of 2000 permits held. It is unknown whether all are alive.")
	})
}

// Of 300 waiters the first 20 have a row, and the others are counted by client. All that are listed can be shown.
func TestHandler_Groups(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.redis.Mutex("m").HoldAs("web-1")
		for i := range 300 {
			s.redis.Mutex("m").CrashQueued(fmt.Sprint("web-", i%3), time.Minute)
		}
		page := s.get("/lock?kind=mutex&name=m")
		require.Contains(t, text(page), "280 more: 27 web-2, 27 web-0, 26 web-1, and 200 that are not listed.")
		require.Equal(t, 20, strings.Count(page, `data-label="Waits for"`))
		require.Contains(t, text(page), "Show 100 one by one")
		page = s.get("/" + links(page, "lock")[0])
		require.Equal(t, 100, strings.Count(page, `data-label="Waits for"`))
		require.Contains(t, text(page), " 200 more that are not listed.")
		require.NotContains(t, text(page), "200 more,")
		require.NotContains(t, text(page), "one by one")
	})
}

// The heads of the columns sort, and lead back. The page that takes a lock can be left, and says who gets the lock.
func TestHandler_SortsAndCancels(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{AllowForceRelease: true}, func(t *testing.T, s *site) {
		s.redis.Mutex("b").HoldAs("web-1")
		time.Sleep(time.Second)
		s.redis.Mutex("a").HoldAs("web-2")
		s.redis.Mutex("a").CrashQueued("web-3", time.Hour)
		time.Sleep(time.Second)
		first := func(target string) string { return links(s.get(target), "lock")[0] }
		require.Equal(t, "lock?kind=mutex&name=a", first("/"), "somebody waits for it")
		require.Equal(t, "lock?kind=mutex&name=a", first("/?sort=name"))
		require.Equal(t, "lock?kind=mutex&name=b", first("/?sort=held"))
		require.Equal(t, "lock?kind=mutex&name=b", first("/?sort=holder"))
		require.Equal(t, "lock?kind=mutex&name=a", first("/?sort=waiting"))
		page := s.get("/?sort=held&q=web")
		require.Contains(t, page, `aria-sort="other"><a href="./?q=web&amp;kind=">Held for</a>`)
		require.Contains(t, page, `<a href="./?q=web&amp;kind=&amp;sort=wait">Oldest wait</a>`)

		form := s.get("/" + links(s.get("/lock?kind=mutex&name=a"), "release")[0])
		require.Contains(t, text(form), "web-3 gets it at once.")
		require.Contains(t, form, `<a class="button" href="lock?kind=mutex&amp;name=a">Cancel</a>`)
		form = s.get("/" + links(s.get("/lock?kind=mutex&name=b"), "release")[0])
		require.Contains(t, text(form), "It is free at once.")
	})
}

// A name can be typed as it is shown, with quotes, or as it is.
func TestHandler_TypedName(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{AllowForceRelease: true}, func(t *testing.T, s *site) {
		for typed, code := range map[string]int{
			`"clean up"`: 200, `clean up`: 200, ` clean up `: 200, `clean`: 422, `"clean`: 422, `"clean  up"`: 422, ``: 422,
		} {
			fence := s.redis.Mutex("clean up").TakeAs("web").Fence()
			target := fmt.Sprintf("/release?kind=mutex&name=clean+up&fence=%d", fence)
			time.Sleep(time.Second)
			body := "typed=" + strings.NewReplacer(" ", "+", `"`, "%22").Replace(typed)
			require.Equal(t, code, s.send(http.MethodPost, target, body).Code, typed)
		}
	})
}
