package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// denial is what a user may not do, or a server does not know.
type denial struct {
	needed, spare []string // commands
	unknown       []string // commands that the server does not have
	keys          bool     // the namespace's keys
	channel       bool     // the namespace's channels
}

// subscribing is how long the server may take to confirm a subscription.
const subscribing = 3500 * time.Millisecond

// tryRights tries every command. Nothing is changed. The error is one of the connection.
func tryRights(ctx context.Context, rdb *redis.Client, key, channel string) (denial, error) {
	var d denial
	cmds := make([]*redis.Cmd, len(rights))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, r := range rights {
			if r.try != nil {
				cmds[i] = p.Do(ctx, append([]any{r.command}, r.try(key, channel)...)...)
			}
		}
		return nil
	})
	if _, broken := refusal(err); broken != nil {
		return d, broken
	}
	for i, r := range rights {
		var err error
		if cmds[i] != nil {
			err = cmds[i].Err()
		} else {
			err = subscribe(ctx, rdb, channel)
		}
		refused, broken := refusal(err)
		if broken != nil {
			return d, broken
		}
		d.note(r, refused)
	}
	return d, nil
}

// subscribe subscribes and unsubscribes.
func subscribe(ctx context.Context, rdb *redis.Client, channel string) error {
	sub := rdb.Subscribe(ctx)
	defer func() { _ = sub.Close() }()
	if err := sub.Subscribe(ctx, channel); err != nil {
		return err
	}
	_, err := sub.ReceiveTimeout(ctx, subscribing)
	return err
}

// note judges by the words of the refusal; any other error says that the command was allowed.
func (d *denial) note(r right, refused error) {
	if refused == nil {
		return
	}
	text := refused.Error()
	_, access, isAccess := strings.Cut(text, "access ")
	switch {
	case strings.Contains(text, "unknown command"):
		d.unknown = append(d.unknown, r.command)
	case !strings.HasPrefix(text, "NOPERM"):
	case isAccess && strings.Contains(access, "channel"):
		d.channel = true
	case isAccess && strings.Contains(access, "key"):
		d.keys = true
	case r.spare:
		d.spare = append(d.spare, r.command)
	default:
		d.needed = append(d.needed, r.command)
	}
}

// finding judges what a user may not do.
func (d denial) finding(user, namespace string) Finding {
	who := fmt.Sprintf("user %q", user)
	if len(d.unknown) > 0 {
		return problem("a server on which they are renamed or switched off cannot keep locks",
			"the server does not know %s", strings.Join(d.unknown, ", "))
	}
	var lacks, rules []string
	lack := func(what, rule string) { lacks, rules = append(lacks, what), append(rules, rule) }
	for _, c := range append(d.needed, d.spare...) {
		lack(c, "+"+c)
	}
	if d.keys {
		lack(fmt.Sprintf("keys %q", namespace+":*"), keyRule(namespace))
	}
	if d.channel {
		lack(fmt.Sprintf("channels %q", namespace+":notify:*"), channelRule(namespace))
	}
	if len(lacks) == 0 {
		return ok("%s may do all that locks need", who)
	}
	advice := "ACL SETUSER " + printable(user) + " " + strings.Join(rules, " ")
	if len(d.needed) > 0 || d.keys {
		return problem(advice, "%s may not use: %s", who, strings.Join(lacks, ", "))
	}
	return warn(advice, "%s may not use: %s; locks work without, less well", who, strings.Join(lacks, ", "))
}
