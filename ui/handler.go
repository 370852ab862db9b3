package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/doctor"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// Options are settings of the page. The zero value is valid.
type Options struct {
	// Namespace is that of the locks, as in fairlock.Config. Default "fairlock".
	Namespace string

	// AllowForceRelease lets everybody who can open the page take a lock from its holder. The user of Redis then needs the
	// rights for that. Without it, the page changes nothing.
	AllowForceRelease bool
}

// Handler serves the page. It is an http.Handler, and safe for concurrent use.
type Handler struct {
	rdb       redis.UniversalClient
	server    *inspect.Server
	options   Options
	where     string // the server's address
	templates *template.Template
	origins   *http.CrossOriginProtection

	stop    context.CancelFunc
	search  *cache[struct{}, search]
	locks   *cache[inspect.ID, inspect.Lock]
	checks  *cache[struct{}, doctor.Report]
	refused doctor.Refused
	acting  chan struct{} // holds one while a lock is being taken by force
}

// NewHandler returns a Handler for the locks on rdb, a *redis.Client (which may be of Sentinel) or a
// *redis.ClusterClient. It does no I/O. The error is a fairlock.ErrInvalid, which names everything that is wrong with
// rdb and o.
//
// The user of Redis needs the rights that docs/operating.md lists for looking, or with AllowForceRelease for operating.
// A ClusterClient with ReadOnly, RouteByLatency or RouteRandomly reads from replicas, which may be behind; the page
// says so.
func NewHandler(rdb redis.UniversalClient, o Options) (*Handler, error) {
	locks, err := fairlock.New(rdb, fairlock.Config{Namespace: o.Namespace}) // it knows what is wrong with them
	if err != nil {
		return nil, err
	}
	_ = locks.Close()
	where, known := address(rdb)
	if !known {
		return nil, &fairlock.FieldError{Field: "rdb", Reason: fmt.Sprintf(
			"is a %T, must be a *redis.Client or a *redis.ClusterClient", rdb)}
	}
	if o.Namespace == "" {
		o.Namespace = bounds.DefaultNamespace
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &Handler{
		rdb: rdb, server: inspect.On(rdb, o.Namespace), options: o, where: where, templates: templates(),
		origins: http.NewCrossOriginProtection(), stop: stop, acting: make(chan struct{}, 1),
	}
	h.search, h.locks, h.checks = newCache(ctx, h.find), newCache(ctx, h.inspect), newCache(ctx, h.check)
	return h, nil
}

// Close ends the Handler. Its pages then show what was read before. Close returns when the requests under way have
// ended. If Redis does not reply, that takes until go-redis's own timeouts. Call it before rdb is closed.
func (h *Handler) Close() error {
	h.stop()
	h.search.close()
	h.locks.close()
	h.checks.close()
	h.server.Close()
	h.acting <- struct{}{} // once the last one has ended
	<-h.acting
	return nil
}

// soon is the least pause between two searches, and the pause after a read without a reply.
const soon = 5 * time.Second

// seldom returns the pause after a read that costs Redis time. The pause is at least least. It is so long that Redis
// spends at most 2 % of its time on such reads. It counts took up to cost, the most that its steps can cost: waiting
// for a Redis that hangs or a slow network is no cost.
func seldom(least, took, cost time.Duration) time.Duration { return max(least, 49*min(took, cost)) }

// address returns the address of the server, and false if it cannot be searched.
func address(rdb redis.UniversalClient) (string, bool) {
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := rdb.Options()
		if o.DB != 0 {
			return fmt.Sprintf("%s, database %d", o.Addr, o.DB), true
		}
		return o.Addr, true
	case *redis.ClusterClient:
		where := strings.Join(rdb.Options().Addrs, ", ")
		if o := rdb.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			where += " (replicas, which may be behind)"
		}
		return where, true
	default:
		return "", false
	}
}

// find finds all locks, with the first holders of each. If Redis stops replying, it returns the locks found by then, or
// the error if there are none.
func (h *Handler) find(ctx context.Context, _ struct{}) (search, time.Duration, error) {
	began, spent := time.Now(), h.server.Spent()
	rest := func() time.Duration { return seldom(soon, time.Since(began), h.server.Spent()-spent) }
	found, err := h.server.Find(ctx, inspect.Want{})
	if len(found) == 0 && err != nil {
		return search{}, rest(), err
	}
	inspect.SortByTrouble(found) // which lists no waiters
	s := search{locks: found, err: err}
	if len(found) == 0 {
		s.noLocks = h.server.NoLocks(h.server.Namespaces(ctx))
	}
	return s, rest(), nil
}

// listed is how many holders and how many waiters of a lock are shown at most. More waiters would keep Redis for over
// half a millisecond.
const listed = 100

func (h *Handler) inspect(ctx context.Context, id inspect.ID) (inspect.Lock, time.Duration, error) {
	const rest = 400 * time.Millisecond
	read, err := h.server.Read(ctx, listed, id)
	if err != nil {
		return inspect.Lock{}, rest, err
	}
	return read[0], rest, nil
}

// check runs the doctor's checks that lock nothing. While Redis does not answer, it tries again soon.
func (h *Handler) check(ctx context.Context, _ struct{}) (doctor.Report, time.Duration, error) {
	began, steps := time.Now(), 0
	o := doctor.Options{
		Namespace: h.options.Namespace, Address: h.where, For: doctor.Look, Progress: func(string,
			string) {
			steps++
		}, Refused: &h.refused,
	}
	if h.options.AllowForceRelease {
		o.For = doctor.Operate
	}
	if err := h.server.Ping(ctx); err != nil {
		if err = inspect.Said(ctx, h.rdb, err); errors.Is(told(err), errSilent) {
			err = errors.New("no answer") // the doctor's words
		}
		return doctor.Unreachable(o, err), soon, context.Cause(ctx)
	}
	report := doctor.Run(ctx, h.rdb, o)
	return report, seldom(time.Minute, time.Since(began), time.Duration(steps)*inspect.PerStep), context.Cause(ctx)
}

//go:embed pages.tmpl assets
var files embed.FS

func templates() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(files, "pages.tmpl"))
}

// policy allows a browser to load only what this package serves.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page. The caller removes the prefix of the request's path, see http.StripPrefix.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-store",
	} {
		w.Header().Set(name, value)
	}
	if err := h.origins.Check(r); err != nil {
		h.fail(w, http.StatusForbidden, "This request comes from another site, and was refused.")
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	serve, known := map[string]func(http.ResponseWriter, *http.Request){
		"": h.serveLocks, "lock": h.serveLock, "server": h.serveServer,
		"style.css": serveAsset, "page.js": serveAsset, "icon.svg": serveAsset,
	}[name]
	methods := []string{http.MethodGet, http.MethodHead}
	if name == "release" && h.options.AllowForceRelease {
		serve, known, methods = h.serveRelease, true, append(methods, http.MethodPost)
	}
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	switch {
	case !known:
		h.fail(w, http.StatusNotFound, "There is no such page.")
	case !slices.Contains(methods, r.Method):
		w.Header().Set("Allow", strings.Join(methods, ", "))
		h.fail(w, http.StatusMethodNotAllowed, "This page does not support this method.")
	case r.URL.Path == "" && !strings.HasSuffix(asked, "/"): // else the links would lead beside the page
		w.Header().Set("Location", path.Base(asked)+"/")
		w.WriteHeader(http.StatusMovedPermanently)
	default:
		serve(w, r)
	}
}

// serveAsset serves a file. Its content is its version.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	content, _ := fs.ReadFile(files, "assets/"+name) // the caller knows that it is there
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(content)))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// page has the data that all pages need.
type page struct {
	Title, Heading   string
	Where, Namespace string
	Tab              string // the tab that is shown: locks or server; "": none
	Refresh          int    // ms after which the page shows what is new; 0: never
	Now              time.Time
	CanRelease       bool
	Body             any
}

// render writes a page by the template of that name.
func (h *Handler) render(w http.ResponseWriter, status int, name string, p page) {
	p.Where, p.Namespace, p.Now, p.CanRelease = h.where, h.options.Namespace, time.Now(), h.options.AllowForceRelease
	var b bytes.Buffer
	if err := h.templates.ExecuteTemplate(&b, name, p); err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w) // an error: the browser has gone
}

// fail writes a page that says what is wrong.
func (h *Handler) fail(w http.ResponseWriter, status int, text string) {
	h.render(w, status, "failure", page{Title: http.StatusText(status), Heading: http.StatusText(status), Body: text})
}

// idOf reads which lock a request is about.
func idOf(r *http.Request) (inspect.ID, error) {
	q := r.URL.Query()
	kind, err := inspect.ParseKind(q.Get("kind"))
	name := q.Get("name")
	if err == nil && (name == "" || len(name) > bounds.MaxName) {
		err = errors.New("the name of a lock has 1 to 1024 bytes")
	}
	return inspect.ID{Kind: kind, Name: name}, err
}
