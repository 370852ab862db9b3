//go:build nightly

// Package page_test looks at the page of package ui in a headless Chromium.
package page_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
	"github.com/fairlock/fairlock-go/leader"
	"github.com/fairlock/fairlock-go/ui"
)

var (
	picture = flag.String("picture", "", "write a picture of the page to this file")
	screens = flag.String("screens", "", "write pictures of all pages to this directory")
)

// browsers are the names of programs that can show the page.
var browsers = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless-shell",
	"chrome"}

// limit bounds what the browser does, so that a test that fails ends.
const limit = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	redistest.Silence()
	os.Exit(redistest.Main(m))
}

// site is a page, mounted under a path, with locks.
type site struct {
	t         *testing.T
	rdb       *redis.Client
	link      *redistest.Link // to Redis
	namespace string
	url       string
	server    *httptest.Server
	mu        sync.Mutex
	faults    []string // guarded by mu: what the browser complains about
	ctx       context.Context
}

// visit opens a browser on the page of a namespace.
func visit(t *testing.T, namespace string) *site {
	t.Helper()
	program := ""
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	require.NotEmpty(t, program, "install one of these: %v", browsers)

	s := &site{t: t, namespace: namespace, link: redistest.NewLink(t, redistest.Shared(t))}
	s.rdb = redis.NewClient(&redis.Options{
		Addr: "redis.example.com:6379", ContextTimeoutEnabled: true, // which is what the page shows
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.link.Addr())
		},
	})
	t.Cleanup(func() { s.rdb.Close() })
	h, err := ui.NewHandler(s.rdb, ui.Options{Namespace: s.namespace, AllowForceRelease: true})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/team/locks/", http.StripPrefix("/team/locks", h))
	s.server = httptest.NewServer(mux)
	s.url = s.server.URL + "/team/locks/"

	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program),
		chromedp.NoSandbox,
		chromedp.Flag("no-proxy-server", true))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, closeTab := chromedp.NewContext(ctx)
	s.ctx = ctx
	t.Cleanup(func() {
		closeTab()
		stop()
		s.server.Close()
		require.NoError(t, h.Close())
	})
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch e := event.(type) {
		case *log.EventEntryAdded:
			s.faults = append(s.faults, e.Entry.Text+" "+e.Entry.URL)
		case *runtime.EventExceptionThrown:
			s.faults = append(s.faults, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			s.faults = append(s.faults, fmt.Sprint(e.Type))
		}
	}))
	call(s, log.Enable, cdp.Empty{})
	return s
}

func (s *site) do(steps ...chromedp.Action[chromedp.Void]) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	require.NoError(s.t, chromedp.Do(ctx, steps...))
}

// call sends a command of the protocol.
func call[P, R any](s *site, command cdp.Command[P, R], params P) {
	s.t.Helper()
	_, err := chromedp.Call(s.ctx, command, params)
	require.NoError(s.t, err)
}

// look returns what an action does.
func look[T any](s *site, action chromedp.Action[T]) T {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	require.NoError(s.t, err)
	return v
}

// open shows a page.
func (s *site) open(link string) {
	s.t.Helper()
	s.do(chromedp.Navigate(s.url + link))
}

// eval returns the value of an expression in the page.
func eval[T any](s *site, expression string) T {
	s.t.Helper()
	return look(s, chromedp.Evaluate[T](expression))
}

func (s *site) text() string { return eval[string](s, "document.querySelector('main').innerText") }

// await waits until the page says something, and returns how long that took.
func (s *site) await(what string) time.Duration {
	s.t.Helper()
	began := time.Now()
	for !strings.Contains(s.text(), what) {
		require.Less(s.t, time.Since(began), limit, "no %q in\n%s", what, s.text())
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

// complaints are what the browser has complained about until now: what the policy forbids, exceptions, responses with
// errors.
func (s *site) complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := s.faults
	s.faults = nil
	return faults
}

// client is a fairlock client of that name. It ends with the test.
func (s *site) client(name string, change ...func(*fairlock.Config)) *fairlock.Client {
	cfg := fairlock.Config{Namespace: s.namespace, Name: name, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	c, err := fairlock.New(s.rdb, cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	return c
}

// hold has a client of that name hold a mutex.
func (s *site) hold(lock, client string) *fairlock.Lease {
	s.t.Helper()
	lease, err := s.client(client).Mutex(lock).Lock(s.t.Context())
	require.NoError(s.t, err)
	return lease
}

// queue has a client wait for a mutex, until the end of the test.
func (s *site) queue(lock, client string) {
	s.t.Helper()
	queued := make(chan struct{})
	c := s.client(client, func(c *fairlock.Config) {
		c.Trace = &fairlock.Trace{Queued: func(fairlock.QueuedInfo) { close(queued) }}
	})
	go func() { _, _ = c.Mutex(lock).Lock(s.t.Context()) }()
	<-queued
}

// A change shows within a second. What has the focus keeps it.
func TestPage_Refreshes(t *testing.T) {
	s := visit(t, t.Name())
	lease := s.hold("m", "web-1")
	s.queue("m", "web-2")
	s.open("lock?kind=mutex&name=m")
	s.await("Held by web-1")
	s.do(chromedp.Focus(chromedp.CSS("a.danger")))
	for range 3 {
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, "Force-release…", eval[string](s, "document.activeElement.textContent"))
	}
	require.NoError(t, lease.Unlock(t.Context()))
	require.Less(t, s.await("Held by web-2"), time.Second)
	s.open("server")
	s.await("checks are ok")
	s.do(chromedp.Click(chromedp.CSS("summary")))
	time.Sleep(6 * time.Second)
	require.True(t, eval[bool](s, "document.querySelector('details').open"))
	require.Empty(t, s.complaints())
}

// greyed are the tiles that are shown as old.
const greyed = `[...document.querySelectorAll('.tiles div')].filter(e => {
	for (; e && getComputedStyle(e).opacity === '1'; e = e.parentElement);
	return e;
}).map(e => e.querySelector('dt').textContent).join(', ')`

// While Redis is away, only the tile of the server is fresh. While the page's own server is away, nothing is.
func TestPage_GreysWhatIsOld(t *testing.T) {
	s := visit(t, t.Name())
	s.hold("m", "web-1")
	awaitGrey := func(tiles string) {
		t.Helper()
		require.Eventually(t, func() bool { return eval[string](s, greyed) == tiles }, limit, 50*time.Millisecond)
		require.Contains(t, s.text(), "web-1", "what was known stays")
		require.Equal(t, strings.HasSuffix(tiles, "server"), strings.Contains(s.text(), "Connection lost"))
	}
	s.open("lock?kind=mutex&name=unused") // searches for locks with other names, and does not check the server
	s.await("not used lately")
	s.link.Cut()
	s.open("")
	awaitGrey("in use, with waiters, oldest wait, missed renewals")

	handler := s.server.Config.Handler
	var broken atomic.Bool
	s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			http.Error(w, "bad gateway", http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	})
	broken.Store(true)
	awaitGrey("in use, with waiters, oldest wait, missed renewals, server")
	broken.Store(false)
	awaitGrey("in use, with waiters, oldest wait, missed renewals")
	s.link.Mend()
	awaitGrey("")
}

// elect starts n candidates, which run until the end of the test. The first one leads.
func (s *site) elect(name string, n int) {
	for i := range n {
		e := leader.New(s.client(fmt.Sprintf("scheduler-%d", i)), name, leader.Config{})
		go func() {
			_ = e.Run(s.t.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil })
		}()
		for i == 0 && e.Lease() == nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// scene has locks as one finds them in the night.
func (s *site) scene() {
	dead := redis.NewClient(s.rdb.Options())
	gone, err := fairlock.New(dead, fairlock.Config{
		Namespace: s.namespace, Name: "billing-7d9f-2-kx2Q", TTL: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { gone.Close() })
	_, err = gone.Mutex("billing:account-4711").Lock(s.t.Context())
	require.NoError(s.t, err)
	require.NoError(s.t, dead.Close()) // it renews no more
	for i := range 4 {
		s.queue("billing:account-4711", fmt.Sprintf("billing-7d9f-%d-a%db", i+3, i))
	}
	for i := range 2 {
		_, err := s.client(fmt.Sprintf("render-%d", i+1)).Semaphore("fragile-api", 5).Acquire(s.t.Context(), 2)
		require.NoError(s.t, err)
	}
	for i := range 3 {
		c := s.client(fmt.Sprintf("render-%d", i+3))
		go func() { _, _ = c.Semaphore("fragile-api", 5).Acquire(s.t.Context(), i+2) }()
		time.Sleep(100 * time.Millisecond)
	}
	for i := range 2 {
		_, err := s.client(fmt.Sprintf("report-%d", i+1)).RWMutex("reports/2026 Q4").RLock(s.t.Context())
		require.NoError(s.t, err)
	}
	c := s.client("nightly-close")
	go func() { _, _ = c.RWMutex("reports/2026 Q4").Lock(s.t.Context()) }()
	lease, err := s.client("cron-1").Mutex("hourly-mail", fairlock.WithMinHold(time.Hour)).Lock(s.t.Context())
	require.NoError(s.t, err)
	require.NoError(s.t, lease.Unlock(s.t.Context()))
	s.elect("leader", 3)
	s.hold("migrate", "deploy-20261125")
	s.hold("search-index", "indexer-eu-west-1b-0")
	time.Sleep(14 * time.Second)
}

// faults is a function in JavaScript that lists what is wrong on a page of that width.
const faults = `(width => {
	const wide = width > 768, near = (a, b) => Math.abs(a - b) < 1;
	const all = (selector, e = document) => [...e.querySelectorAll(selector)].filter(e => e.getClientRects().length);
	const box = e => e.getBoundingClientRect(), main = box(document.querySelector('main'));
	const edge = parseFloat(getComputedStyle(document.querySelector('main')).paddingLeft);
	const content = (e, letters) => {
		const range = document.createRange();
		range.selectNodeContents(e);
		if (letters) range.setEnd(e.firstChild, letters);
		return box(range);
	};
	const above = td => {
		const table = td.closest('table');
		return wide ? table.rows[0].cells[td.cellIndex] : all('td[data-label]', table)[0];
	};
	const number = td => content(td, td.innerText.match(/^\S*/)[0].length).right;
	const share = text => {
		const [, part, milli, whole] = text.match(/^([\d.]+)(m?)s? of ([\d.]+)/) ?? [];
		return part / (milli ? 1000 : 1) / whole;
	};
	const rows = all('.locks tbody tr');
	return Object.entries({
		'wider than the screen': [document.documentElement].filter(e => e.scrollWidth > width),
		'not in the column of the page': all('.brand, #live > *').filter(e =>
			!near(box(e).left, main.left + edge) || box(e).right > main.right - edge + 1),
		'the first lock is not on the screen': rows.slice(0, 1).filter(e => !wide && box(e).top > 300),
		'a choice is not on a telephone': [...document.querySelectorAll('.filter :is(input, select, button)')].filter(e =>
			!wide && !(box(e).width > 10 && box(e).left >= 0 && box(e).right <= width && box(e).bottom < 200)),
		'rows of several heights': rows.filter(e => wide && !near(box(e).height, box(rows[0]).height)),
		'a value does not begin below its neighbour': all('td[data-label]:not([data-label=Action])').filter(td =>
			!(wide && td.matches('.number')) && !near(content(td).left, content(above(td)).left)),
		'a number does not end below its neighbour': all('td.number').filter(td =>
			wide && !near(number(td), content(above(td)).right)),
		'a bar is not as long as its text says': all('meter').filter(e => !(Math.abs(e.value / e.max -
			share((e.closest('td')?.previousElementSibling ?? e.parentElement).innerText)) < .1)),
	}).flatMap(([fault, found]) => found.map(e => fault + ': ' + e.outerHTML.slice(0, 90)));
})`

// No page has one of the faults, on a telephone or a desk. With -screens, there are pictures of them.
func TestPage_Screens(t *testing.T) {
	s := visit(t, t.Name())
	s.scene()
	s.hold(strings.Repeat("tenant/0123456789abcdef.", 42)+"0123456789abcdef",
		strings.Repeat("a-very-long-client-name-", 5))
	for i := range 150 {
		if i < 30 || *screens == "" {
			s.queue("search-index", fmt.Sprintf("indexer-%d", i%40))
		}
	}
	for i := range 3 {
		_, err := s.client(fmt.Sprintf("train-%d", i)).KeyedSemaphore("gpu", 4).Key(fmt.Sprintf("tenant %d", i%2),
			fairlock.WithKeyLimit(2)).Acquire(t.Context(), 1)
		require.NoError(t, err)
	}
	for i := range 4 {
		key := s.client(fmt.Sprintf("train-%d", i+3)).KeyedSemaphore("gpu", 4).Key(fmt.Sprintf("tenant %d", i%2),
			fairlock.WithKeyLimit(2))
		go func() { _, _ = key.Acquire(t.Context(), 2) }()
	}
	s.open("")
	s.await("(keys at their limits)")
	links := eval[[]string](s, `[...document.querySelectorAll('th[scope=row] a')].map(a => a.getAttribute('href'))`)
	pages := map[string]string{"list": "", "server": "server", "nowhere": "nowhere", "filtered": "?q=zzz"}
	for i, link := range links {
		pages[fmt.Sprint("lock", i)] = link
	}
	s.open("lock?kind=mutex&name=migrate")
	pages["release"] = eval[string](s, `document.querySelector('a.danger').getAttribute('href')`)
	for name, link := range pages {
		for _, width := range []int64{390, 1440} {
			for _, scheme := range []string{"light", "dark"} {
				s.size(width, 900)
				call(s, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
				})
				s.open(link)
				require.Empty(t, eval[[]string](s, fmt.Sprintf("%s(%d)", faults, width)), "%s at %d", link, width)
				if *screens != "" {
					s.shoot(filepath.Join(*screens, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)))
				}
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, slices.DeleteFunc(s.faults, func(f string) bool { return strings.Contains(f, "nowhere") }))
}

// size sets that of the screen; a narrow one is a telephone's.
func (s *site) size(width, height int64) {
	s.t.Helper()
	call(s, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	})
}

// shoot writes a picture of the whole page.
func (s *site) shoot(file string) {
	s.t.Helper()
	image := look(s, chromedp.FullScreenshot(100))
	require.True(s.t, bytes.HasPrefix(image, []byte("\x89PNG")))
	require.NoError(s.t, os.WriteFile(file, image, 0o600))
}

// TestPicture writes the picture of the README.
func TestPicture(t *testing.T) {
	if *picture == "" {
		t.Skip("make screenshot writes it")
	}
	s := visit(t, "shop")
	s.scene()
	s.size(1200, 400)
	s.open("server")
	s.await("checks are ok")
	s.open("")
	s.shoot(*picture)
}
