package fairlock

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/fairlock/fairlock-go/token"
)

// Handle has the token and the fence of a lease, which a process needs to resume it, once. It can be stored as
// string(h). It is enough to take the lock, so fmt and log/slog print it redacted. The old holder gets ErrLost at its
// next renewal. After an error of Resume other than ErrRevoked, the lease may have been taken over. Its client then
// releases it when Redis serves it and the minimum hold is over. json.Marshal writes the whole handle.
type Handle string

func newHandle(t token.Token, fence uint64) Handle {
	return Handle(t.Text() + "/" + strconv.FormatUint(fence, 10))
}

// parse returns the token and the fence, or a *FieldError if h is not a Handle.
func (h Handle) parse() (token.Token, uint64, error) {
	slash := strings.LastIndexByte(string(h), '/')
	if slash < 0 {
		return token.Token{}, 0, &FieldError{"handle", "must come from Lease.Handle, Detach or Inspect"}
	}
	t, err := token.Parse(string(h[:slash]))
	if err != nil {
		return token.Token{}, 0, &FieldError{"handle", err.Error()}
	}
	fence, err := strconv.ParseUint(string(h[slash+1:]), 10, 53)
	if err != nil || fence == 0 {
		return token.Token{}, 0, &FieldError{"handle", "must end with the fence of a lease"}
	}
	return t, fence, nil
}

// String returns the handle redacted: the client, 24 of the token's 128 random bits, and the fence.
func (h Handle) String() string {
	t, fence, err := h.parse()
	if err != nil {
		return "(no handle)"
	}
	return fmt.Sprintf("%v/%d", t, fence)
}

// Format prints String for every verb.
func (h Handle) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = io.WriteString(f, "fairlock.Handle("+h.String()+")")
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), h.String())
}

// LogValue is String for log/slog.
func (h Handle) LogValue() slog.Value { return slog.StringValue(h.String()) }
