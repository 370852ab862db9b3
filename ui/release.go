package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/words"
)

// releasePage requests confirmation before a lock is taken from a holder, or reports that it was taken.
type releasePage struct {
	ID       inspect.ID
	Fence    uint64
	Lock     inspect.Lock
	Holder   admin.Holder // the one it is taken from
	Mistyped bool         // the name was not typed correctly
	Verdict  words.Phrase // once it was taken: how the lock stands now
}

// serveRelease shows the form, and takes the lock when it is sent.
func (h *Handler) serveRelease(w http.ResponseWriter, r *http.Request) {
	id, err := idOf(r)
	fence, notNumber := strconv.ParseUint(r.URL.Query().Get("fence"), 10, 64)
	if err = errors.Join(err, notNumber); err != nil {
		h.fail(w, http.StatusBadRequest, "The request must name a lock and a holder: "+inspect.Message(err)+".")
		return
	}
	p := releasePage{ID: id, Fence: fence}
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
		if isName(strings.TrimSpace(r.PostFormValue("typed")), id.Name) {
			h.release(w, r, p)
			return
		}
		p.Mistyped = true
	}
	g := h.locks.get(r.Context(), id)
	if g.at.IsZero() {
		h.fail(w, http.StatusServiceUnavailable, "Redis does not answer, so the holder is unknown.")
		return
	}
	p.Lock = g.value
	holder, holds := holderOf(p.Lock, fence)
	if p.Holder = holder; !holds {
		h.failRelease(w, p, errOther)
		return
	}
	status := http.StatusOK
	if p.Mistyped {
		status = http.StatusUnprocessableEntity
	}
	h.render(w, status, "release", page{Title: "Force-release " + id.String(), Heading: "Force-release " +
		inspect.Plain(id.Name), Body: p})
}

// isName reports whether typed is the name of a lock: raw, as the page shows it, or quoted.
func isName(typed, name string) bool {
	unquoted, err := strconv.Unquote(typed)
	return typed == inspect.Plain(name) || typed == strings.TrimSpace(name) && typed != "" || err == nil &&
		unquoted == name
}

// holderOf finds the holder with a fence.
func holderOf(l inspect.Lock, fence uint64) (admin.Holder, bool) {
	for _, holder := range l.Holders {
		if holder.Fence == fence && mayTake(l, holder) {
			return holder, true
		}
	}
	return admin.Holder{}, false
}

// Why a lock was not taken.
var (
	errOther = errors.New("the lease with this fence is over")
	errBusy  = errors.New("another lock is being taken")
)

// acts is the timeout for taking a lock from its holder.
const acts = 5 * time.Second

// release takes the lock, and returns the next holder.
func (h *Handler) release(w http.ResponseWriter, r *http.Request, p releasePage) {
	// If the browser closes the page meanwhile, the lock is taken all the same.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), acts,
		fmt.Errorf("no reply within %v", acts))
	defer cancel()
	select {
	case h.acting <- struct{}{}:
	default:
		h.failRelease(w, p, errBusy)
		return
	}
	taken, err := inspect.Await(ctx, func() (taken, error) {
		defer func() { <-h.acting }()
		return h.take(ctx, p.ID, p.Fence)
	})
	if err != nil {
		h.failRelease(w, p, err)
		return
	}
	p.Holder, p.Lock, p.Verdict = taken.from, taken.after, words.Verdict(taken.after)
	h.render(w, http.StatusOK, "released", page{Title: "Released: " + p.ID.String(), Heading: "Released: " +
		inspect.Plain(p.ID.Name), Body: p})
}

// taken is the outcome of a forced release.
type taken struct {
	from  admin.Holder
	after inspect.Lock
}

// take takes a lock from the holder with this fence. It returns errOther if there is no such holder now; nothing was
// changed then. Redis compares the fence when it releases the lock, so it cannot be taken from a later holder.
func (h *Handler) take(ctx context.Context, id inspect.ID, fence uint64) (t taken, err error) {
	read, err := h.server.Read(ctx, inspect.Most, id)
	if err != nil {
		return t, err
	}
	holder, holds := holderOf(read[0], fence)
	if !holds {
		return t, errOther
	}
	t.from = holder
	released, err := h.server.Admin.ReleaseHolder(ctx, fairlock.ID(id), fence)
	if err != nil {
		return t, inspect.Bare(err)
	}
	if !released {
		return t, errOther
	}
	if read, err = h.server.Read(ctx, listed, id); err != nil {
		t.after = inspect.Lock{ID: id, Err: told(err)}
		return t, nil // it was taken; the page says why the rest is unknown
	}
	t.after = read[0]
	return t, nil
}

func (h *Handler) failRelease(w http.ResponseWriter, p releasePage, err error) {
	status, text := http.StatusBadGateway, "Redis has not confirmed it: "+inspect.Message(told(err))+
		". It is unknown whether the lock was taken. "+
		"Check that before you try again."
	switch {
	case errors.Is(err, errOther):
		status, text = http.StatusConflict, fmt.Sprintf(
			"Nothing was changed: the lease with fence %d has ended, or is unknown here. "+
				"See who holds the lock now.", p.Fence)
	case errors.Is(err, errBusy):
		status, text = http.StatusServiceUnavailable,
			"Nothing was changed: another lock is being taken. Try again in a moment."
	}
	p.Verdict = words.Phrase{Level: words.Bad, Text: text}
	h.render(w, status, "not-released", page{Title: http.StatusText(status), Heading: "Not released: " +
		inspect.Plain(p.ID.Name), Body: p})
}
