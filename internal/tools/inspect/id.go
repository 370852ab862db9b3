package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/keyspace"
	"github.com/fairlock/fairlock-go/internal/script"
)

// Kinds are all kinds of locks.
var Kinds = []fairlock.Kind{fairlock.KindMutex, fairlock.KindSemaphore, fairlock.KindRWMutex,
	fairlock.KindKeyedSemaphore}

// HasPermits reports whether a holder of a lock of that kind has a number of permits.
func HasPermits(kind fairlock.Kind) bool {
	return kind == fairlock.KindSemaphore || kind == fairlock.KindKeyedSemaphore
}

// ParseKind reads what a user calls a kind.
func ParseKind(text string) (fairlock.Kind, error) {
	if kind := fairlock.Kind(text); slices.Contains(Kinds, kind) {
		return kind, nil
	}
	return "", fmt.Errorf("kind %s is unknown: want mutex, semaphore, rwmutex or keyed", Plain(text))
}

// ID is a fairlock.ID, with what programs for operators need of it.
type ID fairlock.ID

// IDs are the locks of these names and kinds.
func IDs(names []string, kinds ...fairlock.Kind) (ids []ID) {
	for _, name := range names {
		for _, kind := range kinds {
			ids = append(ids, ID{kind, name})
		}
	}
	return ids
}

// String names the lock in one line; without a kind, it is just the name.
func (id ID) String() string { return strings.TrimPrefix(string(id.Kind)+" ", " ") + Plain(id.Name) }

// Compare orders locks by name.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Name, other.Name), slices.Index(Kinds, id.Kind)-slices.Index(Kinds, other.Kind))
}

func idOf(k keyspace.Key) ID { return ID{fairlock.Kind(k.Kind), k.Name} }

// Keys are all keys of the lock.
func (id ID) Keys(namespace string) (names []string) {
	for _, k := range script.KeysOf(string(id.Kind), namespace, id.Name) {
		names = append(names, k.Name)
	}
	return names
}

// Plain returns a text for one line. It quotes the text as in Go if it is not valid UTF-8, or has control characters,
// spaces, quotes or marks of text direction.
func Plain(text string) string {
	odd := func(r rune) bool { return r == ' ' || r == '"' || r == '\\' || !strconv.IsPrint(r) }
	if text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// Message is what an error says, in one line. What a terminal would not show as it is is escaped; which script of ours
// failed in which line is left out.
func Message(err error) string {
	var b strings.Builder
	text := inScript.ReplaceAllString(strings.TrimPrefix(err.Error(), "fairlock: "), "")
	for _, r := range strings.ReplaceAll(text, "\n", "; ") {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// lacksText stands before the right that lacks.
const lacksText = "this user lacks "

// Cause is Message, but of a right that the user lacks it names that right alone, as ACL SETUSER has it. So one cause
// is one text, whichever lock it was found at.
func Cause(err error) string {
	if all := (unread{}); errors.As(err, &all) { // which has named it
		return Message(all)
	}
	if right := lacking(err); right != "" {
		return lacksText + right
	}
	return Message(err)
}

// Lacks reports whether the error says that the user lacks a right.
func Lacks(err error) bool { return lacking(err) != "" }

// lacking returns which right the user lacks by the reply of Redis; "" if none.
func lacking(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	text := Message(reply)
	switch m := lacksCommand.FindStringSubmatch(text); {
	case m != nil:
		return "+" + strings.ToLower(m[1])
	case lacksKeys.MatchString(text):
		return "the keys of the namespace"
	case lacksOne.MatchString(text):
		return cmp.Or(commandsIn(reply), "a command that the scripts run")
	}
	return ""
}

// commandsIn returns the commands in the line of a script that a server has refused. Before version 7.4, Redis does not
// name the refused command, but the script and the line. "" if it is no script of this version.
func commandsIn(reply redis.Error) string {
	m := refusedLine.FindStringSubmatch(reply.Error())
	if m == nil {
		return ""
	}
	lines := strings.Split(script.Sources()[m[1]+m[3]].Text, "\n")
	n, _ := strconv.Atoi(m[2] + m[4])
	if n < 1 || n > len(lines) {
		return ""
	}
	var rules []string
	for _, m := range called.FindAllStringSubmatch(lines[n-1], -1) {
		if rule := "+" + strings.ToLower(m[1]); !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return strings.Join(rules, " or ")
}

// refusedLine finds the script and the line in an error of Redis 7, and of Redis 6.2.
var refusedLine = regexp.MustCompile(`script: ([0-9a-f]{40}), on @user_script:(\d+)|` +
	`call to f_([0-9a-f]{40})\): @user_script:(\d+)`)

var called = regexp.MustCompile(`call\('(\w+)'`)

// What Redis 6.2, Redis 7 and Valkey say of a command, alone and in a script, and of keys.
var (
	lacksCommand = regexp.MustCompile(`(?:NOPERM|ACL failure in script).* no permissions to run the '([^']+)' command`)
	lacksOne     = regexp.MustCompile(`executing the script can't run this command|ACL failure in script`)
	lacksKeys    = regexp.MustCompile(`(?:NOPERM|ACL failure in script).*(?:access one of the keys|access a key)|` +
		`executing the script can't access at least one of the keys`)
)

var inScript = regexp.MustCompile(
	` script: ([0-9a-f]{40}, )?on @user_script:\d+\.?|Error running script \(call to f_[0-9a-f]{40}\): |` +
		`@?user_script: ?\d+: -?`)

// Span is a duration in a few characters, rounded down.
func Span(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	case d >= time.Minute:
		return d.Truncate(time.Second).String()
	case d >= time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	default:
		return d.Truncate(time.Millisecond).String()
	}
}

// Count is a number of things; English has an s for all of ours.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
