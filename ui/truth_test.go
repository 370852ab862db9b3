package ui_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/ui"
)

// slow is what a page says of a read that takes longer than the page waits.
var slow = regexp.MustCompile(`Redis has not answered|Redis does not answer|have taken`)

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
		for page := ""; page == "" || slow.MatchString(page); { // this machine may be busy for longer than a page waits
			page = get("/server") + get("/") + get("/lock?kind=mutex&name=m0") + get("/lock?kind=mutex&name=m")
		}
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
			require.Contains(t, text(unused), "not used lately. Similar names could not be searched: this user lacks +scan.")
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
	})
}
