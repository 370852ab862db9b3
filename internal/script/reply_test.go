package script_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/errs"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/token"
)

// others are replies that differ from a good one in one place. The wrong ones have a value of another type there, or
// end there; the odd ones have another number or word.
func others(good []any) (wrong, odd []any) {
	for i, had := range good {
		with := func(values ...any) (all []any) {
			for _, v := range values {
				reply := slices.Clone(good)
				reply[i] = v
				all = append(all, reply)
			}
			return all
		}
		if _, inner := good[0].([]any); !inner { // a list of lists may be shorter
			wrong = append(wrong, slices.Clone(good[:i]))
		}
		wrong = append(wrong, with(nil, 1.5, true, []byte("x"), map[any]any{"a": 1}, errors.New("x"))...)
		switch had := had.(type) {
		case []any:
			innerWrong, innerOdd := others(had)
			wrong, odd = append(append(wrong, with("1", int64(1))...), with(innerWrong...)...), append(odd, with(innerOdd...)...)
			if len(had) > 0 {
				wrong = append(wrong, with([]any{nil})...)
			}
		case int64: // of milliseconds 9223372036854 are the most that a time.Duration holds
			wrong = append(wrong, with("1", []any{had}, int64(math.MinInt64))...)
			odd = append(odd, with(int64(-1), int64(0), int64(9223372036854), int64(9223372036855), int64(1<<53-1))...)
			odd = append(odd, with(int64(1<<53), int64(math.MaxInt64))...)
			if had > 1<<32 {
				wrong = append(wrong, with(int64(1<<53))...)
			}
		case string:
			wrong, odd = append(wrong, with(int64(1), []any{had})...), append(odd, with("0", "9")...)
			if had != anyText {
				wrong = append(wrong, with("", " "+had)...)
			}
		}
	}
	return wrong, odd
}

// A reply of another form is an error, and the request is ambiguous. What a method returns for one that it accepts can
// be true.
func TestReply_OfAnotherForm(t *testing.T) {
	for _, v := range verbs {
		require.NotEmpty(t, v.replies, v.name)
		for _, good := range v.replies {
			v.answered(good, func(result any, err error) {
				require.NoError(t, err, "%s: %v", v.name, good)
				assert.NotEqual(t, "true", ambiguous(result))
			})
			wrong, odd := others(good)
			for _, bad := range append(wrong, nil, "OK", int64(1), true, 1.5, map[any]any{"a": "b"}) {
				if slices.ContainsFunc(v.replies, func(good list) bool { return reflect.DeepEqual(bad, any(good)) }) {
					continue // fewer grants, for example, are no error
				}
				v.answered(bad, func(result any, err error) {
					assert.ErrorIs(t, err, script.ErrReply, "%s: %#v", v.name, bad)
					assert.Equal(t, call.Permanent, call.OriginOf(err), "it comes again")
					assert.NotEqual(t, "false", ambiguous(result), "%s: %#v", v.name, bad)
				})
			}
			for _, other := range odd {
				v.answered(other, func(result any, err error) {
					if err == nil {
						plausible(t, reflect.ValueOf(result), len(faked.waiters))
					} else {
						require.ErrorIs(t, err, script.ErrReply, v.name)
					}
				})
			}
		}
	}
	for _, bad := range []any{"", "q", "qqq", "qx", nil, one} {
		_, err := script.Mutex(fake{list{large, one, bad}}, "ns", "name").Heartbeat(ctx, waiterTTL, mutex.waiters(2))
		assert.ErrorIs(t, err, script.ErrReply, "%v", bad)
	}
}

// ambiguous is "true" or "false" as a result says, and "" if it says nothing.
func ambiguous(result any) string {
	if r := reflect.ValueOf(result); r.Kind() == reflect.Struct && r.FieldByName("Ambiguous").IsValid() {
		return strconv.FormatBool(r.FieldByName("Ambiguous").Bool())
	}
	return ""
}

// forms are the forms in which a server's reply reaches the library.
var forms = [][2]string{
	{"of the server", "%s"},
	{"of a script in 6.2", "ERR Error running script (call to f_0123): @user_script:12: @user_script: 12: %s"},
	{"of a command in 6.2", "ERR Error running script (call to f_0123): @user_script:12: @user_script: 12: -%s"},
	{"of a script in 7", "%s script: 0123, on @user_script:12."},
}

// hooked is an error that a hook of the Redis client has made of the server's.
type hooked struct{ error }

func (e hooked) Error() string { return "tenant 7: " + e.error.Error() }
func (hooked) RedisError()     {}
func (e hooked) Unwrap() error { return e.error }

// meaning is what an error means, whatever the verb: where it comes from, whether the script may have written before,
// and whether the request is ambiguous.
func meaning(t *testing.T, cause error) string {
	t.Helper()
	all, unsure := map[string]bool{}, map[string]bool{}
	for _, v := range verbs {
		v.answered(cause, func(result any, err error) {
			require.ErrorIs(t, err, cause, v.name)
			origin := call.OriginOf(fmt.Errorf("wrapped: %w", err))
			assert.Equal(t, origin == call.Refused, errors.Is(err, errs.Refused))
			means, is := []string{"permanent", "no reply", "unavailable", "refused"}[origin], ambiguous(result)
			if script.Aborted(err) {
				means += ", half-way"
				assert.True(t, v.name != "release" || is == "true", "the lock may be released: %v", cause)
			} else if is != "" {
				unsure[is] = true
			}
			all[means] = true
		})
	}
	require.Len(t, all, 1, "%v", cause)
	require.LessOrEqual(t, len(unsure), 1, "%v", cause)
	return slices.Collect(maps.Keys(all))[0] + map[bool]string{true: ", ambiguous"}[unsure["true"]]
}

// What each reply means in each form, however hooks have wrapped it: testdata/errors.txt has the replies, and -update
// writes what they mean.
func TestErrors_OfRedis(t *testing.T) {
	replies, err := os.ReadFile("testdata/errors.txt")
	require.NoError(t, err)
	var out strings.Builder
	for line := range strings.Lines(string(replies)) {
		if strings.HasPrefix(line, "    ") {
			continue
		}
		out.WriteString(line)
		like := map[string][]string{} // forms, by what they mean
		for _, form := range forms {
			text := refusal(fmt.Sprintf(form[1], strings.TrimSuffix(line, "\n")))
			means := meaning(t, text)
			assert.Equal(t, means, meaning(t, hooked{text}))
			assert.Equal(t, means, meaning(t, fmt.Errorf("wrapped: %w", text)))
			assert.Equal(t, "no reply, ambiguous", meaning(t, errors.New(string(text))), "it is no error of Redis")
			like[means] = append(like[means], form[0])
		}
		for _, means := range slices.Sorted(maps.Keys(like)) {
			fmt.Fprintf(&out, "    %s: %s\n", means, strings.Join(like[means], ", "))
		}
	}
	golden.Equal(t, "errors.txt", out.String())
}

// What an error means that no server has sent.
func TestErrors_OfTheClient(t *testing.T) {
	for want, all := range map[string][]error{
		"no reply, ambiguous": {
			io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, errors.New("unknown"),
			errors.New("redis: connection pool timeout"), &net.OpError{Op: "dial", Err: errors.New("refused")},
			fmt.Errorf("wrapped: %w", io.EOF), fmt.Errorf("wrapped: %w", redis.Nil),
		},
		"no reply": {
			fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", refusal("IDONTKNOW x")),
		},
		"permanent, ambiguous": {redis.ErrClosed, fmt.Errorf("wrapped: %w", redis.ErrClosed), redis.Nil},
	} {
		for _, cause := range all {
			assert.Equal(t, want, meaning(t, cause), "%v", cause)
		}
	}
	assert.Equal(t, call.Permanent, call.OriginOf(nil))
	assert.Equal(t, call.Permanent, call.OriginOf(io.EOF), "it is not of a request")
	assert.False(t, script.Aborted(nil))
}

// Words of a host's name, say, do not make an error one of Redis.
func TestErrors_OnlyRedisExplained(t *testing.T) {
	const text = "lookup NOPERM-OOM-WRONGTYPE.example: no such host"
	const denied = "ERR ACL failure in script: User u has no permissions to run the 'zadd' command" // Redis 7.4, Valkey
	for cause, want := range map[error]string{
		&net.OpError{Op: "dial", Err: errors.New(text)}: "dial: " + text,
		refusal("OOM x"): `keys "ns:{name}:sem:*": redis refuses: OOM x`,
		refusal(denied):  `keys "ns:{name}:sem:*": redis refuses: ` + denied,
	} {
		verbs[0].answered(cause, func(_ any, err error) { assert.EqualError(t, err, want) })
	}
}

// plausible checks what a method returns for a reply that it accepts: all that it consists of, and what follows from an
// outcome.
func plausible(t *testing.T, v reflect.Value, tokens int) {
	t.Helper()
	switch x := v.Interface().(type) {
	case time.Duration:
		assert.Zero(t, x%time.Millisecond, "%d overflowed", x)
		return
	case time.Time:
		assert.False(t, !x.IsZero() && x.Before(time.UnixMicro(0))) // no reply has when a grant was requested
		return
	case token.Token:
		_, err := token.Parse(x.Text())
		require.NoError(t, err)
		return
	case script.WaiterState:
		assert.True(t, script.NotQueued <= x && x <= script.Holding)
	case script.Grant:
		assert.Positive(t, x.Fence)
		assert.Positive(t, x.Given)
	case script.HeartbeatReply:
		assert.Len(t, x.States, tokens)
	case script.Reply:
		switch x.Outcome {
		case script.Granted:
			assert.Positive(t, x.Fence)
		case script.Queued:
			assert.True(t, x.Ticket > 0 && x.Position > 0)
		case script.Full:
			assert.Positive(t, x.Position)
		case script.Resized:
			assert.Positive(t, x.Permits)
		default:
			assert.Equal(t, script.Busy, x.Outcome)
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			plausible(t, v.Field(i), tokens)
		}
	case reflect.Slice:
		for i := range v.Len() {
			plausible(t, v.Index(i), tokens)
		}
	case reflect.Uint64:
		assert.Less(t, v.Uint(), uint64(1)<<53, "a double is not exact")
	case reflect.Int:
		assert.GreaterOrEqual(t, v.Int(), int64(0))
	default:
		assert.Contains(t, []reflect.Kind{reflect.Bool, reflect.String}, v.Kind(), "this test does not know it")
	}
}

func TestParseNotification(t *testing.T) {
	who := mutex.held(1)
	g, err := script.ParseNotification(who.Text() + " 1753700000000001 6000")
	require.NoError(t, err)
	require.Equal(t, script.Grant{Token: who, Fence: 1753700000000001, Given: 6 * time.Second}, g)
	for _, bad := range []string{
		"T", "T ", "T 1", "T 1 ", "T x 1", "T 1 x", "T -1 1", "T 1 1 1", "T  1 1", " T 1 1", "c 1 1",
		"nobody:quarantined 1 1", "T 1.5 1",
		"T 18446744073709551616 1", "T 1 9223372036854775808", "T 1 1\n", "T T T", "1 2 3", "", " ", "  ", "\x00", "T 0x1 2",
		"T 0 0", "T 1 0", "T 0 -1", "c 0 0", "T 1 -1", "T 9007199254740992 1", "T 1 9223372036855",
	} {
		bad = strings.ReplaceAll(bad, "T", who.Text())
		g, err := script.ParseNotification(bad)
		require.ErrorIs(t, err, script.ErrReply, "%q", bad)
		require.Equal(t, script.Grant{}, g)
	}
}
