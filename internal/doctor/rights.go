package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fairlock/fairlock-go/internal/inspect"
)

// commands are those that locks need, each with arguments that change nothing: KEY is a key that does not exist. Redis looks at
// a user's rights before it looks at the arguments.
const commands = `
eval return 1 KEY; evalsha 0000 1 KEY; time; exists KEY; get KEY; set KEY x xx px 1; del KEY; type KEY; pttl KEY; pexpire KEY 1;
zadd KEY xx 0 x; zrem KEY x; unlink KEY; zrange KEY 0 0; zrank KEY x; zscore KEY x; zmscore KEY x; zcard KEY; zcount KEY 0 0;
zrangebyscore KEY 0 0; hget KEY x; hmget KEY x; hset KEY x 1 x; hdel KEY x; hlen KEY; hscan KEY 0;
hincrby KEY x x; publish CHANNEL x; subscribe CHANNEL`

// spare are those without which locks work, if less well.
var spare = []string{"+type", "+publish", "+subscribe"}

// Rights is a command for redis-cli that makes a user with the least rights for something.
type Rights struct {
	For string `json:"for"`
	ACL string `json:"acl"`
}

// RightsIn are the least rights for what is done with locks in the namespace. A server before Redis 7 cannot restrict keys or
// scripts to reading; but without the right to a command that writes, a script cannot write either.
func RightsIn(namespace string, before7 bool) []Rights {
	const (
		reads  = " +time +get +type +pttl +zrange +zscore +zcard +zcount +zrangebyscore +hget +hmget +scan"
		writes = " +eval +evalsha +exists +set +del +pexpire +zadd +zrem +hset +hdel +hlen +hscan +zmscore +hincrby +unlink +publish"
	)
	keys, channels := patterns(namespace)
	look := "%R" + keys + " +eval_ro +evalsha_ro" + reads
	if before7 {
		look = keys + " +eval +evalsha" + reads
	}
	use := []string{keys, channels}
	for command := range strings.SplitSeq(commands, ";") {
		use = append(use, "+"+strings.Fields(command)[0])
	}
	acl := func(user, rules string) string { // go-redis asks a cluster for its slots
		return "ACL SETUSER " + user + " reset resetchannels on >password " + rules + " +cluster|slots"
	}
	return []Rights{
		{"use locks", acl("fairlock", strings.Join(use, " "))},
		{"look (status, list, watch)", acl("fairlock-look", look)},
		{"operate (look and release)", acl("fairlock-operate", keys+" "+channels+writes+reads)},
	}
}

// patterns are the rules for a namespace's keys and channels. A rule has no spaces: any character stands for one.
func patterns(namespace string) (keys, channels string) {
	special := func(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '\'' } // for ACL, and for redis-cli
	glob := strings.Join(strings.FieldsFunc(inspect.Glob(namespace), special), "?")
	return "~" + glob + ":*", "&" + glob + ":notify:*"
}

// confirming is how long the server may take to confirm a subscription.
const confirming = 3500 * time.Millisecond

// rights tries every command that locks need.
func (s *server) rights(ctx context.Context) (Finding, error) {
	keys, channels := patterns(s.Namespace)
	var lacks []string
	v := is(OK, "the user may do all that locks need")
	for command := range strings.SplitSeq(commands, ";") {
		var args []any
		for word := range strings.FieldsSeq(command) {
			word = strings.Replace(word, "KEY", s.Namespace+":{"+s.name+"}:rights", 1)
			args = append(args, strings.Replace(word, "CHANNEL", s.Namespace+":notify:"+s.name, 1))
		}
		err := s.try(ctx, args)
		if err != nil && !inspect.Refused(err) {
			return v, err
		}
		rule := "+" + args[0].(string)
		switch _, access, _ := strings.Cut(fmt.Sprint(err), "access "); {
		case err == nil || !strings.HasPrefix(err.Error(), "NOPERM"):
			continue // allowed
		case strings.Contains(access, "channel"):
			rule = channels
		case strings.Contains(access, "key"):
			rule = keys
		}
		if slices.Contains(lacks, rule) {
			continue
		}
		lacks = append(lacks, rule)
		if v.Result != Problem && (rule == channels || slices.Contains(spare, rule)) {
			v.Result = Warning // locks work without it, less well
		} else {
			v.Result = Problem
		}
	}
	if len(lacks) > 0 {
		v.Found = "the user lacks " + strings.Join(lacks, " ")
	}
	return v, nil
}

func (s *server) try(ctx context.Context, args []any) error {
	if args[0] != "subscribe" {
		return s.rdb.Do(ctx, args...).Err()
	}
	sub := s.rdb.Subscribe(ctx, args[1].(string))
	defer func() { _ = sub.Close() }()
	_, err := sub.ReceiveTimeout(ctx, confirming)
	return err
}
