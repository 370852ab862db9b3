package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// facts is what a server says of itself. What it does not tell is missing; the errors say why.
type facts struct {
	hello, info, config          map[string]string
	noHello, noInfo, noConfigure error
	first                        time.Duration // until the first answer
}

// settings are what is asked of CONFIG, one by one: before version 7 it takes no more.
var settings = []string{
	"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "stop-writes-on-bgsave-error",
	"min-replicas-to-write", "min-replicas-max-lag",
}

// gather asks HELLO, which every user may, INFO and CONFIG. The error is one of the connection.
func gather(ctx context.Context, rdb *redis.Client) (f facts, err error) {
	start := time.Now()
	hello, err := rdb.Do(ctx, "hello").Result()
	f.first = time.Since(start)
	if f.noHello, err = refusal(err); err != nil {
		return f, err
	}
	f.hello = pairs(hello)

	info, err := rdb.Info(ctx).Result()
	if f.noInfo, err = refusal(err); err != nil {
		return f, err
	}
	f.info = fields(info)

	f.config = map[string]string{}
	for _, name := range settings {
		got, err := rdb.ConfigGet(ctx, name).Result()
		if f.noConfigure, err = refusal(err); err != nil || f.noConfigure != nil {
			return f, err
		}
		maps.Copy(f.config, got)
	}
	return f, nil
}

// refusal tells an error that is the server's answer from one of the connection.
func refusal(err error) (refused, broken error) {
	if _, answered := errors.AsType[redis.Error](err); answered {
		return err, nil
	}
	return nil, err
}

// pairs reads the reply to HELLO, a map or, by the old protocol, a list.
func pairs(reply any) map[string]string {
	m := map[string]string{}
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			m[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			m[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	return m
}

// fields reads the reply to INFO.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, found := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); found {
			m[k] = v
		}
	}
	return m
}

// setting returns one of CONFIG, or its namesake of INFO if there is one.
func (f facts) setting(name, namesake string) (string, bool) {
	if v, told := f.config[name]; told {
		return v, true
	}
	v, told := f.info[namesake]
	return v, told && namesake != ""
}

// number is a setting that is one.
func (f facts) number(name, namesake string) (int64, bool) {
	v, told := f.setting(name, namesake)
	n, err := strconv.ParseInt(v, 10, 64)
	return n, told && err == nil
}

// silent says why the server does not tell something.
func (f facts) silent(what string) Finding {
	const advice = "ask who runs the server, or call this as a user with +info and +config|get"
	switch {
	case f.noConfigure != nil && f.noInfo != nil:
		return unchecked(advice, "%s: CONFIG and INFO are refused (%s)", what, reason(f.noInfo))
	case f.noConfigure != nil:
		return unchecked(advice, "%s: CONFIG is refused (%s)", what, reason(f.noConfigure))
	case f.noInfo != nil:
		return unchecked(advice, "%s: INFO is refused (%s)", what, reason(f.noInfo))
	}
	return unchecked("ask who runs the server", "%s: the server does not tell", what)
}

// reason is a refusal in few words, for they are repeated.
func reason(refused error) string {
	text := oneLine(refused)
	if code, _, _ := strings.Cut(text, " "); code != "ERR" {
		return code
	}
	if short, _, long := strings.Cut(text, ", with args"); long {
		return short
	}
	return text
}

// oneLine is an error that cannot disturb a terminal.
func oneLine(err error) string { return printable(err.Error()) }

// printable shows a text of the server's in one line, without control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\t':
			return ' '
		case !strconv.IsPrint(r):
			return '?'
		}
		return r
	}, strings.TrimSpace(text))
}
