package view

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// The shape that scripts read. What is not known is null; times are UTC, durations milliseconds.
type (
	lockJSON struct {
		Kind    Kind         `json:"kind"`
		Name    string       `json:"name"`
		Base64  string       `json:"name_base64,omitempty"` // the name's bytes, if name cannot have them
		At      time.Time    `json:"at"`
		Held    bool         `json:"held"`
		Used    int          `json:"used"`
		Permits *int         `json:"permits"`
		Fence   *uint64      `json:"fence"`
		Rest    *int64       `json:"resting_ms"`
		Holders []holderJSON `json:"holders"`
		Waiting int          `json:"waiting"`
		Waiters []waiterJSON `json:"waiters,omitzero"`
	}
	holderJSON struct {
		Client *string    `json:"client"`
		ID     *string    `json:"id"` // tells it from others of its client; not the whole token
		Fence  *uint64    `json:"fence"`
		Since  *time.Time `json:"since"`
		Held   *int64     `json:"held_ms"`
		Left   *int64     `json:"lease_left_ms"`
		Weight int        `json:"permits"`
		Writer bool       `json:"writer"`
	}
	waiterJSON struct {
		Client   *string    `json:"client"`
		ID       *string    `json:"id"`
		Since    *time.Time `json:"since"`
		Waits    *int64     `json:"waiting_ms"`
		Alive    bool       `json:"alive"`
		Patience *int64     `json:"patience_ms"`
		Weight   int        `json:"permits"`
		Writer   bool       `json:"writer"`
	}
)

// known is nil for a zero value, which stands for what is not known.
func known[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// lasting is how long it is since a moment; nil if that is not known.
func (l Lock) lasting(since time.Time) *int64 {
	if since.IsZero() {
		return nil
	}
	ms := l.At.Sub(since).Milliseconds()
	return &ms
}

func utc(t time.Time) *time.Time {
	return known(t.UTC().Truncate(time.Microsecond))
}

func (l Lock) document() lockJSON {
	d := lockJSON{
		Kind: l.Kind, Name: l.Name, At: l.At.UTC(), Held: l.Held(), Used: l.Used, Permits: known(l.Permits),
		Fence: known(l.Fence), Waiting: l.Waiting, Holders: []holderJSON{},
	}
	if !utf8.ValidString(l.Name) {
		d.Base64 = base64.StdEncoding.EncodeToString([]byte(l.Name))
	}
	if l.Resting {
		ms := l.Rest.Milliseconds()
		d.Rest = &ms
	}
	for _, h := range l.Holders {
		holder := holderJSON{
			Fence: known(h.Fence), Since: utc(h.Since), Held: l.lasting(h.Since), Weight: h.Weight, Writer: h.Writer,
		}
		if !h.Token.IsZero() {
			holder.Client, holder.ID = known(h.Token.Client()), known(h.Token.String())
		}
		if h.Left >= 0 {
			ms := h.Left.Milliseconds()
			holder.Left = &ms
		}
		d.Holders = append(d.Holders, holder)
	}
	if l.Waiters != nil {
		d.Waiters = []waiterJSON{}
	}
	for _, w := range l.Waiters {
		waiter := waiterJSON{
			Since: utc(w.Since), Waits: l.lasting(w.Since), Alive: w.Alive(), Weight: w.Weight, Writer: w.Writer,
		}
		if !w.Token.IsZero() {
			waiter.Client, waiter.ID = known(w.Token.Client()), known(w.Token.String())
		}
		if w.Heard {
			ms := w.Patience.Milliseconds()
			waiter.Patience = &ms
		}
		d.Waiters = append(d.Waiters, waiter)
	}
	return d
}

// JSON is the lock on one line.
func (l Lock) JSON() string {
	text, err := json.Marshal(l.document())
	if err != nil {
		panic(err) // nothing in there that JSON does not have
	}
	return ascii(string(text))
}

// ascii writes as escapes what is not seen as itself, as JSON allows within its strings; nowhere else are such
// characters.
func ascii(text string) string {
	if !strings.ContainsFunc(text, hides) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !hides(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b.WriteString(escaped(high) + escaped(low))
		default:
			b.WriteString(escaped(r))
		}
	}
	return b.String()
}

func hides(r rune) bool { return !strconv.IsPrint(r) }

func escaped(r rune) string {
	hex := strconv.FormatInt(int64(r), 16)
	return `\u` + strings.Repeat("0", 4-len(hex)) + hex
}

// JSON is an array of locks, one on a line.
func JSON(locks []Lock) string {
	if len(locks) == 0 {
		return "[]\n"
	}
	lines := make([]string, len(locks))
	for i, l := range locks {
		lines[i] = l.JSON()
	}
	return "[\n" + strings.Join(lines, ",\n") + "\n]\n"
}
