package ui_test

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/sample"
	"github.com/fairlock/fairlock-go/ui"
)

// site is a page under test, in simulated time.
type site struct {
	t       *testing.T
	redis   *fairlocktest.Server
	link    *fairlocktest.Link
	traffic *traffic
	http.Handler
}

// visit runs a test with a page.
func visit(t *testing.T, o ui.Options, test func(t *testing.T, s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := fairlocktest.NewServer(t)
		link := m.Link()
		rdb := link.Redis()
		seen := &traffic{}
		rdb.AddHook(seen)
		h, err := ui.NewHandler(rdb, o)
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()) }()
		test(t, &site{t, m, link, seen, h})
	})
}

// traffic is what was sent to Redis.
type traffic struct {
	searches, inspections, largest atomic.Int64
	otherSteps                     atomic.Int64 // SCANs that are to look at another number of keys than 500
	further                        atomic.Int64 // SCANs that each search needs, after the first: as if there were many keys
	lacks                          atomic.Value // the command that the user may not call, SCAN or one of scripts
}

// refusal is an error of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}

// refuse has a command fail if the user lacks a right to it.
func (s *traffic) refuse(cmd redis.Cmder) error {
	switch lacks := s.lacks.Load(); {
	case lacks == cmd.Name():
		cmd.SetErr(refusal(fmt.Sprintf("NOPERM this user has no permissions to run the '%s' command", lacks)))
	case lacks != nil && lacks != "scan" && strings.HasPrefix(cmd.Name(), "eval") && len(cmd.Args()) > 4: // a script
		cmd.SetErr(refusal(fmt.Sprintf("ERR ACL failure in script: User x has no permissions to run the '%s' command "+
			"script: 0123, on @user_script:3.", lacks)))
	}
	return cmd.Err()
}

func (*traffic) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.see(cmd)
		err := next(ctx, cmd)
		if scan, ok := cmd.(*redis.ScanCmd); ok {
			at, _ := strconv.ParseInt(fmt.Sprint(cmd.Args()[1]), 10, 64)
			if keys, _ := scan.Val(); at < s.further.Load() {
				scan.SetVal(keys, uint64(at+1))
			}
		}
		return cmp.Or(s.refuse(cmd), err)
	}
}

func (s *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			s.see(cmd)
		}
		if strings.HasPrefix(cmds[0].Name(), "eval") { // else it is the doctor's
			s.largest.Store(max(s.largest.Load(), int64(len(cmds))))
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			err = cmp.Or(err, s.refuse(cmd))
		}
		return err
	}
}

func (s *traffic) see(cmd redis.Cmder) {
	switch args := cmd.Args(); {
	case cmd.Name() == "scan" && strings.HasSuffix(fmt.Sprint(args[3]), "[kesd]"): // else it is the doctor's
		if fmt.Sprint(args[1]) == "0" {
			s.searches.Add(1)
		}
		if fmt.Sprint(args[5]) != "500" {
			s.otherSteps.Add(1)
		}
	case strings.HasPrefix(cmd.Name(), "eval"):
		s.inspections.Add(1)
	}
}

// send sends a request as a browser does.
func (s *site) send(method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(s.t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// get returns the text of a page.
func (s *site) get(target string) string {
	w := s.send(http.MethodGet, target, "")
	require.Equal(s.t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

var tags = regexp.MustCompile(`(?s)<[^>]*>|\s+`)

// text is what a page shows, in one line.
func text(page string) string {
	_, page, _ = strings.Cut(page, "<main")
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(page, " "))), " ")
}

// links are those of a page that lead to a page of that name.
func links(page, to string) (targets []string) {
	for _, m := range regexp.MustCompile(`href="(`+to+`\?[^"]*)"`).FindAllStringSubmatch(page, -1) {
		targets = append(targets, html.UnescapeString(m[1]))
	}
	return targets
}

var (
	levels = regexp.MustCompile(`<[^>]*class="[^"]*\b(bad|warn|busy|good)\b[^>]*>`)
	ends   = regexp.MustCompile(`</(?:tr|p|dl|h1|h2)>`)
)

// lines are what a page shows of the locks or the checks, a row or a paragraph a line. What is good or bad has that
// before it.
func lines(page string) string {
	page, _, _ = strings.Cut(page, `<details id="rights">`)
	_, live, found := strings.Cut(page, `<div id="live"`)
	if !found { // no data of locks
		_, live, _ = strings.Cut(page, "This page tries again.</p>")
	}
	var all []string
	for _, part := range ends.Split(levels.ReplaceAllString(live, "[$1] $0"), -1) {
		if part = text("<main" + part); part != "" {
			all = append(all, "  "+strings.TrimPrefix(part, "> "))
		}
	}
	return sample.Stable(strings.Join(all, "\n") + "\n")
}

// What the page shows of each lock of the sample, and which of them it finds.
func TestHandler_Golden(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{AllowForceRelease: true}, func(t *testing.T, s *site) {
		require.Contains(t, text(s.get("/")), "No locks in this namespace or in any other.")
		ids, end := sample.Locks(t, s.redis)
		defer end()
		shown := "list\n" + lines(s.get("/"))
		for _, id := range ids {
			page := s.get("/lock?" + url.Values{"kind": {string(id.Kind)}, "name": {id.Name}}.Encode())
			shown += id.String() + "\n" + lines(page)
			if id.Name == "crowd" {
				require.Equal(t, 20, strings.Count(page, `data-label="Waits for"`))
				page = s.get("/lock?kind=mutex&name=crowd&all=1")
				require.Equal(t, 66, strings.Count(page, `data-label="Waits for"`))
				require.Contains(t, text(page), " 34 more that are not listed.")
				require.NotContains(t, text(page), "one by one")
			}
		}
		golden.Equal(t, "pages.txt", shown)
		for query, want := range map[string]int{
			"q=CROSSWISE": 2, "q=leaked": 1, "kind=rwmutex": 2, "waiting=1": 16, "q=nothing": 0, "kind=mutex&waiting=1&q=crowd": 1,
			"from=30": 4, "from=99": 0, "kind=%00&from=-1": 34,
		} {
			require.Len(t, links(s.get("/?"+query), "lock"), want, query)
		}
		heads := s.get("/?sort=held&q=web")
		require.Contains(t, heads, `aria-sort="other"><a href="./?q=web&amp;kind=">Held for</a>`, "leads back")
		require.Contains(t, heads, `<a href="./?q=web&amp;kind=&amp;sort=wait">Oldest wait</a>`)
		form, _, _ := strings.Cut(s.get("/?q=web&kind=mutex&sort=wait&waiting=1"), "</form>")
		for _, chosen := range []string{
			` name="q" value="web" `, `"kind"><option value="">all kinds</option><option selected>mutex<`,
			`<option value="wait" selected>by oldest wait<`, ` name="waiting" value="1" checked>`,
		} {
			require.Contains(t, form, chosen)
		}
		require.Contains(t, text(s.get("/?q=WEB-3&kind=semaphore")), "web-2 and 2 more, web-3 among them")
		require.NotContains(t, text(s.get("/?q=three&kind=semaphore")), "among them", "it is found by its name")
	})
}

// 120 locks make three pages.
func TestHandler_ListIsBounded(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		for i := range 120 {
			s.redis.Mutex(fmt.Sprintf("<%03d>", i)).HoldAs("web")
		}
		page, seen := s.get("/?q=%3C&kind=mutex"), map[string]bool{}
		for range 2 {
			locks, next := links(page, "lock"), links(page, `\./`)
			require.Len(t, locks, 50)
			for _, l := range locks {
				seen[l] = true
			}
			page = s.get(strings.TrimPrefix(next[len(next)-1], "."))
		}
		require.Len(t, links(page, "lock"), 20)
		require.Len(t, seen, 100)
		require.NotContains(t, page, ">the next<")
		require.LessOrEqual(t, s.traffic.largest.Load(), int64(16), "inspections in one pipeline")
		require.Zero(t, s.traffic.otherSteps.Load())
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
	})
}

// names have HTML, quotes, slashes, dots, control characters, other bytes, and 1 KiB.
var names = []string{
	`<script>alert(1)</script>`, `"'` +
		"`", `a//b`, `../../etc`, `.`, `a&b=c;d#e?f%41+g`, "\x00\x1b[31m\r\n", "\xff\xfe", `</textarea><b>`,
	"{{.}}", `javascript:alert(1)`, "a b", "\u202egnp.exe", "日本語", strings.Repeat("ä<", 341) + "!",
}

// Every name leads to its own lock, from the list to its end, also under another path and behind a ServeMux.
func TestHandler_Names(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{AllowForceRelease: true}, func(t *testing.T, s *site) {
		for _, name := range names {
			s.redis.Mutex(name).HoldAs("web")
		}
		s.redis.Mutex("other").HoldAs("web")
		mux := http.NewServeMux()
		mux.Handle("/team/locks/", http.StripPrefix("/team/locks", s.Handler))
		s.Handler = mux
		base, _ := url.Parse("/team/locks/")
		at := func(link string) string {
			u, err := base.Parse(link)
			require.NoError(t, err)
			return u.String()
		}
		page := s.get(base.Path)
		require.NotContains(t, page, "<script>")
		require.NotContains(t, page, "<b>alert")
		var have []string
		for _, link := range links(page, "lock") {
			u, err := url.Parse(link)
			require.NoError(t, err)
			name := u.Query().Get("name")
			have = append(have, name)
			lock := s.get(at(link))
			shown := fmt.Sprintf(`<bdi class="name[^"]*">%s</bdi>`, regexp.QuoteMeta(template(inspect.Plain(name))))
			require.Regexp(t, shown, lock)
			require.NotContains(t, lock, "<script>")
			form := s.get(at(links(lock, "release")[0]))
			require.NotContains(t, form, "</textarea><b>")
			require.Contains(t, form, `<a class="button" href="`+html.EscapeString(link)+`">Cancel</a>`)
			action := html.UnescapeString(regexp.MustCompile(`action="(release[^"]*)"`).FindStringSubmatch(form)[1])
			w := s.send(http.MethodPost, at(action), url.Values{"typed": {inspect.Plain(name)}}.Encode())
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			s.redis.Mutex(name).AssertFree()
		}
		require.ElementsMatch(t, append(names, "other"), have)
	})
}

// template is a text in HTML, as html/template has it.
func template(text string) string {
	return strings.ReplaceAll(html.EscapeString(text), "+", "&#43;")
}

// No response has a token, or what another program has written; it tells a browser to load nothing from elsewhere; and
// it has nothing inline.
func TestHandler_Responses(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{AllowForceRelease: true}, func(t *testing.T, s *site) {
		secrets := []string{"hunter2"}
		for _, name := range []string{"a", "b"} {
			token := s.redis.Mutex(name).HoldAs("web").Token().Text()
			secrets = append(secrets, token, token[len(token)-22:])
			token = s.redis.Mutex(name).CrashQueued("next", time.Minute).Text()
			secrets = append(secrets, token, token[len(token)-22:])
		}
		require.NoError(t, s.redis.Miniredis.Set(script.KeysOf("mutex", "fairlock", "theirs").Part("lock"), "hunter2"))
		require.NoError(t, s.redis.Miniredis.Set(script.KeysOf("mutex", "fairlock", "broken").Part("queue"), "hunter2"))
		lock := s.get("/lock?kind=mutex&name=a")
		time.Sleep(time.Second)
		pages := []*httptest.ResponseRecorder{}
		for _, target := range append([]string{
			"/", "/server", "/lock?kind=mutex&name=a", "/lock?kind=mutex&name=theirs", "/lock?kind=mutex&name=broken",
			"/nowhere", "/lock",
		}, links(lock, "release")...) {
			pages = append(pages, s.send(http.MethodGet, "/"+strings.TrimPrefix(target, "/"), ""))
		}
		pages = append(pages, s.send(http.MethodPost, "/"+links(lock, "release")[0], "typed=a"),
			s.send(http.MethodPut, "/", ""))
		inline := regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son\w+=|javascript:|https?://`)
		for _, w := range pages {
			for _, secret := range secrets {
				require.NotContains(t, w.Body.String(), secret)
				require.NotContains(t, fmt.Sprint(w.Header()), secret)
			}
			require.NotRegexp(t, inline, w.Body.String())
			csp := w.Header().Get("Content-Security-Policy")
			require.Contains(t, csp, "default-src 'none'")
			require.NotContains(t, csp, "unsafe")
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		}
		for name, kind := range map[string]string{"style.css": "text/css", "page.js": "javascript",
			"icon.svg": "image/svg+xml"} {
			w := s.send(http.MethodGet, "/"+name, "")
			require.Contains(t, w.Header().Get("Content-Type"), kind)
			w = s.send(http.MethodGet, "/"+name, "", "If-None-Match", w.Header().Get("ETag"))
			require.Equal(t, http.StatusNotModified, w.Code)
		}
		tooLong := "/lock?kind=mutex&name=" + strings.Repeat("x", 1025)
		require.Equal(t, http.StatusBadRequest, s.send(http.MethodGet, tooLong, "").Code)
	})
}

// Without its slash, the links of the first page would lead beside it.
func TestHandler_Slash(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.Handler = http.StripPrefix("/team/locks", s.Handler)
		w := s.send(http.MethodGet, "/team/locks?q=x", "")
		require.Equal(t, []any{http.StatusMovedPermanently, "locks/"}, []any{w.Code, w.Header().Get("Location")})
		s.get("/team/locks/")
	})
}

// However many look, Redis is searched every 5 s at most, and each lock is read every 400 ms at most.
func TestHandler_OneSnapshotForAll(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.redis.Mutex("m").HoldAs("web")
		s.get("/server") // what the doctor asks is not counted
		for i := range 100 {
			s.get("/")
			s.get("/?q=m")
			require.EqualValues(t, 1+i/50, s.traffic.searches.Load(), "after %d s/10", i)
			time.Sleep(100 * time.Millisecond)
		}
		s.traffic.inspections.Store(0)
		for range 40 {
			s.get("/lock?kind=mutex&name=m")
			s.get("/lock?kind=mutex&name=m")
			time.Sleep(100 * time.Millisecond)
		}
		require.EqualValues(t, 10, s.traffic.inspections.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 10, s.traffic.inspections.Load(), "nobody looks")
	})
}

// Among many keys, a search is repeated when it has taken 2 % of the time, and the page says when. What counts is
// Redis's time, not that of a slow network.
func TestHandler_SearchesTwoPercentOfTheTime(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.traffic.further.Store(119) // with the first, 120 ms at most
		s.redis.Mutex("m").HoldAs("web")
		s.get("/lock?kind=mutex&name=m")
		s.link.Delay(10*time.Millisecond, 10*time.Millisecond)
		began := time.Now()
		require.Contains(t, text(s.get("/")), "Nothing was read yet. A new search has taken 500ms so far.")
		time.Sleep(2 * time.Second)
		require.Contains(t, text(s.get("/")), "2.5s ago · complete. The next search comes in 5.")
		for s.traffic.searches.Load() < 2 {
			time.Sleep(100 * time.Millisecond)
			s.get("/")
		}
		require.InDelta(t, 8.9, time.Since(began).Seconds(), 0.3)
	})
}

// Pages answer, and the goroutines of many requests end. (It counts them, so it runs alone.)
func TestHandler_HangingRedis(t *testing.T) {
	visit(t, ui.Options{AllowForceRelease: true}, func(t *testing.T, s *site) {
		lease := s.redis.Mutex("m").HoldAs("web-1")
		targets := []string{"/", "/lock?kind=mutex&name=m", "/server"}
		for _, target := range targets {
			s.get(target)
		}
		time.Sleep(2 * time.Minute)
		s.redis.Mutex("m").TakeAs("web-2")
		s.link.Hang()
		before := runtime.NumGoroutine()
		var all sync.WaitGroup
		for i := range 1000 {
			target := append(targets, fmt.Sprint("/lock?kind=mutex&name=", i))[i%4]
			all.Go(func() {
				began := time.Now()
				assert.Equal(t, http.StatusOK, s.send(http.MethodGet, target, "").Code)
				assert.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
			})
		}
		all.Wait()
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+20)
		form := fmt.Sprintf("/release?kind=mutex&name=m&fence=%d", lease.Fence())
		for range 100 {
			all.Go(func() { s.send(http.MethodPost, form, "typed=m") })
		}
		all.Wait()
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+20)
	})
}

// That Redis refuses connections is found by the checks, and what is wrong with the settings is an error.
func TestHandler_Errors(t *testing.T) {
	t.Parallel()
	visit(t, ui.Options{}, func(t *testing.T, s *site) {
		s.link.Cut()
		require.Contains(t, text(s.get("/server")), "reachable problem")
		_, err := ui.NewHandler(s.link.Redis(), ui.Options{Namespace: "{a}"})
		require.ErrorIs(t, err, fairlock.ErrInvalid)
		for _, rdb := range []redis.UniversalClient{nil, (*redis.Client)(nil),
			struct{ redis.UniversalClient }{s.link.Redis()}} {
			_, err = ui.NewHandler(rdb, ui.Options{})
			require.ErrorIs(t, err, fairlock.ErrInvalid)
		}
	})
}
