package script

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/token"
)

// ErrReply is wrapped by the error for a reply that no script of ours gives.
var ErrReply = errors.New("unexpected reply")

// Aborted reports whether a script that requests a lock raised the error, and may have written something before, which
// stays: the lock may be granted, or the waiter queued. An error that passes was raised by the first write. A foreign
// key and a bad number are found before that.
func Aborted(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !call.Passes(err) && inScript.MatchString(reply.Error()) &&
		!contains(reply, "WRONGTYPE") && !badNumber.MatchString(reply.Error())
}

// badNumber finds what number.lua says of a number that it does not understand.
var badNumber = regexp.MustCompile(`the number (has layout|is damaged|is too far ahead)`)

// inScript finds an error that a script raised, and its line there. Miniredis says that it could not compile the
// script.
var inScript = regexp.MustCompile(`user_script: ?(\d+)|Error compiling script`)

// explain adds to an error of the server what is needed to find its cause: Redis says that a key has the wrong type,
// but not which key, and that a command is not allowed, but not which command.
func (l Lock) explain(ctx context.Context, s script, err error) error {
	var reply redis.Error
	switch {
	case !errors.As(err, &reply):
	case contains(err, "WRONGTYPE"):
		if key := l.foreignKey(ctx); key != "" {
			return fmt.Errorf("key %q is not ours: %w", key, err)
		}
		return fmt.Errorf("one of the keys %q is not ours: %w", l.keys, err)
	case otherLayout.MatchString(err.Error()):
		return &token.LayoutError{What: fmt.Sprintf("key %q", l.keys[0]),
			Layout: otherLayout.FindStringSubmatch(err.Error())[1]}
	case contains(err, "the number is damaged"), contains(err, "the number is too far ahead"):
		return fmt.Errorf("%w (another program has written key %q; if nobody uses the lock, delete it)", err, l.keys[0])
	case refusedInScript.MatchString(err.Error()):
		return fmt.Errorf("keys %q: %w%s", strings.TrimSuffix(l.keys[0], l.kind.keys[0].name)+"*", err, s.lineOf(reply))
	}
	return err
}

// refusedInScript finds a refusal: a user lacks rights, in the words of Redis 6.2 to 7.2, or of Redis 7.4 and Valkey;
// or the server is full.
var refusedInScript = regexp.MustCompile(`NOPERM|can't run this command|ACL failure in script|OOM`)

// otherLayout finds the layout in the error of a script that does not know it.
var otherLayout = regexp.MustCompile(`the number has layout (\d+)`)

// lineOf returns the line of the script that raised an error, in brackets; "" if it is not known.
func (s script) lineOf(err error) string {
	m := inScript.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	lines := strings.Split(s.text, "\n")
	n, _ := strconv.Atoi(m[1])
	if n < 1 || n > len(lines) {
		return ""
	}
	return fmt.Sprintf(" (%s)", strings.TrimSpace(lines[n-1]))
}

// contains looks for the words anywhere: before version 7, and in memory, Redis wraps the errors of a script.
func contains(err error, words string) bool { return strings.Contains(err.Error(), words) }

// foreignKey returns the first key that has the wrong type; "" if none has.
func (l Lock) foreignKey(ctx context.Context) string {
	found, err := run(ctx, l.rdb, typesScript, l.keys).StringSlice()
	if err != nil || len(found) != len(l.keys) {
		return ""
	}
	for i, redisType := range found {
		if redisType != "none" && redisType != l.kind.keys[i].redisType {
			return l.keys[i]
		}
	}
	return ""
}
