package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/inspect"
)

// uses are the commands that locks need, and others those that only operators need: each with arguments that change nothing.
// KEY is a key that does not exist. Redis looks at a user's rights before it looks at the arguments.
const (
	uses = `
eval return 1 KEY; evalsha 0000 1 KEY; time; exists KEY; get KEY; set KEY x xx px 1; del KEY; type KEY; pttl KEY; pexpire KEY 1;
zadd KEY xx 0 x; zrem KEY x; unlink KEY; zrange KEY 0 0; zrank KEY x; zscore KEY x; zmscore KEY x; zcard KEY; zcount KEY 0 0;
zrangebyscore KEY 0 0; zrangebylex KEY - -; zlexcount KEY - -; hget KEY x; hset KEY x 1 x; hdel KEY x; hlen KEY; hscan KEY 0; hincrby KEY x x;
publish CHANNEL x; subscribe CHANNEL`
	others = `eval_ro return 1 KEY; evalsha_ro 0000 1 KEY; scan 0 match KEY count 1`
)

// Purpose is what a user of Redis is for.
type Purpose string

// The purposes.
const (
	Use     Purpose = "use"     // programs that lock
	Look    Purpose = "look"    // operators who look at locks
	Operate Purpose = "operate" // operators who may also change them
)

// Purposes are all of them, in the order of RightsIn.
var Purposes = []Purpose{Use, Look, Operate}

// Commands names the commands of fairlock that need the rights for a purpose; "" for Use. Those that look need no others, and
// those that operate need these as well.
func (p Purpose) Commands() string {
	return map[Purpose]string{Look: "status, list, watch, ui", Operate: "release and resize"}[p]
}

// PurposeOf is that of a user who calls a command of fairlock.
func PurposeOf(command string) Purpose {
	for _, p := range Purposes {
		if slices.Contains(strings.FieldsFunc(p.Commands(), func(r rune) bool { return r == ',' || r == ' ' }), command) {
			return p
		}
	}
	return Use
}

// spare are those without which locks work, if less well.
var spare = []string{"+type", "+publish", "+subscribe"}

// Rights is a command for redis-cli that makes a user with the least rights for something.
type Rights struct {
	For string `json:"for"`
	ACL string `json:"acl"`
}

// RightsIn are the least rights for what is done with locks in the namespace, one for each of Purposes.
func RightsIn(namespace string, before7 bool) (all []Rights) {
	texts := map[Purpose]string{Use: "use locks", Look: "look (" + Look.Commands() + ")", Operate: "operate (look, " + Operate.Commands() + ")"}
	users := map[Purpose]string{Use: "fairlock", Look: "fairlock-look", Operate: "fairlock-operate"}
	for _, purpose := range Purposes {
		needs := needsOf(purpose, namespace, before7)
		rules := slices.DeleteFunc([]string{needs.keys, needs.channels}, func(rule string) bool { return rule == "" })
		for _, command := range needs.commands {
			rules = append(rules, "+"+command)
		}
		all = append(all, Rights{texts[purpose], // go-redis asks a cluster for its slots
			"ACL SETUSER " + users[purpose] + " reset resetchannels on >password " + strings.Join(rules, " ") + " +cluster|slots"})
	}
	return all
}

// needs are rights, without the signs that ACL has before commands.
type needs struct {
	keys, channels string // rules; channels is empty if none are needed
	commands       []string
}

// needsOf are those for a purpose. A server before Redis 7 cannot restrict keys or scripts to reading; but without the right
// to a command that writes, a script cannot write either.
func needsOf(purpose Purpose, namespace string, before7 bool) needs {
	const (
		reads  = "time get type pttl zrange zscore zcard zcount zrangebyscore zrangebylex zlexcount hget scan"
		writes = "eval evalsha exists set del pexpire zadd zrem hset hdel hlen hscan zmscore hincrby unlink publish "
	)
	keys, channels := patterns(namespace)
	switch {
	case purpose == Look && before7:
		return needs{keys, "", strings.Fields("eval evalsha " + reads)}
	case purpose == Look:
		return needs{"%R" + keys, "", strings.Fields("eval_ro evalsha_ro " + reads)}
	case purpose == Operate:
		return needs{keys, channels, strings.Fields(writes + reads)}
	}
	n := needs{keys, channels, nil}
	for use := range strings.SplitSeq(uses, ";") {
		n.commands = append(n.commands, strings.Fields(use)[0])
	}
	return n
}

// patterns are the rules for a namespace's keys and channels. A rule has no spaces: any character stands for one.
func patterns(namespace string) (keys, channels string) {
	special := func(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '\'' } // for ACL, and for redis-cli
	glob := strings.Join(strings.FieldsFunc(inspect.Glob(namespace), special), "?")
	return "~" + glob + ":*", "&" + glob + ":notify:*"
}

// confirming is how long the server may take to confirm a subscription.
const confirming = 3500 * time.Millisecond

// known are the replies of a server that knows the commands above, and lets the user call them; unable those of one that does not
// write now.
var (
	known  = regexp.MustCompile(`^(NOSCRIPT|ERR (hash )?value is not an integer|ERR wrong number of arguments)`)
	unable = regexp.MustCompile(`^(READONLY|MISCONF|OOM|NOREPLICAS|CLUSTERDOWN|LOADING|MASTERDOWN|BUSY|TRYAGAIN|MOVED|ASK) `)
)

// rights tries every command that the user needs. A service that others run may not have one.
func (s *server) rights(ctx context.Context) (Finding, error) {
	major, _ := s.facts.version()
	needs := needsOf(s.For, s.Namespace, major == 6)
	var lacks, refused []string
	s.facts.writes = ""
	v := is(OK, "the user may do all that %s need", map[Purpose]string{Use: "locks", Look: Look.Commands(), Operate: "status, " + Operate.Commands()}[s.For])
	for attempt := range strings.SplitSeq(uses+";"+others, ";") {
		var args []any
		for word := range strings.FieldsSeq(attempt) {
			word = strings.Replace(word, "KEY", s.Namespace+":{"+s.name+"}:rights", 1)
			args = append(args, strings.Replace(word, "CHANNEL", s.Namespace+":notify:"+s.name, 1))
		}
		if !slices.Contains(needs.commands, args[0].(string)) {
			continue
		}
		err := s.try(ctx, args)
		if err != nil && !inspect.Refused(err) {
			return v, err
		}
		if err == nil || errors.Is(err, redis.Nil) || known.MatchString(err.Error()) {
			continue
		}
		if unable.MatchString(err.Error()) {
			s.facts.writes = inspect.Message(err)
			continue
		}
		rule := "+" + args[0].(string)
		switch _, access, _ := strings.Cut(err.Error(), "access "); {
		case !strings.HasPrefix(err.Error(), "NOPERM"):
			refused = append(refused, fmt.Sprintf("%s (%s)", args[0], inspect.Message(err)))
		case strings.Contains(access, "channel"):
			rule = needs.channels
		case strings.Contains(access, "key"):
			rule = needs.keys
		}
		if v.Result != Problem && (rule == needs.channels || slices.Contains(spare, rule)) {
			v.Result = Warning // locks work without it, less well
		} else {
			v.Result = Problem
		}
		if len(refused) == 0 && !slices.Contains(lacks, rule) {
			lacks = append(lacks, rule)
		}
	}
	if v.Own = len(lacks) > 0; v.Own {
		v.Found = "the user lacks " + strings.Join(lacks, " ")
		v.Paste = "ACL SETUSER " + s.user() + " " + strings.Join(lacks, " ")
		if s.For == Use {
			v.Advice = "give them to the user; what an operator's user needs, --for look or --for operate says"
		}
	}
	if len(refused) > 0 {
		v.Found = "the server refuses " + strings.Join(refused, ", ")
		v.Advice = "if it is a service that others run, look in its documentation for how to have these commands"
	}
	return v, nil
}

// user is the name of the user, or where to put it.
func (s *server) user() string {
	name := s.rdb.Options().Username
	if cluster, ok := s.all.(*redis.ClusterClient); ok {
		name = cluster.Options().Username
	}
	return cmp.Or(name, "default")
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
