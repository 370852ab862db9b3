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

	"github.com/fairlock/fairlock-go/internal/keyspace"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// uses are the commands that locks need, and others those that only operators need: each with arguments that change
// nothing. KEY is a key that does not exist. Redis looks at a user's rights before it looks at the arguments.
const (
	uses = `
eval return 1 KEY; evalsha 0000 1 KEY; time; exists KEY; get KEY; set KEY x xx px 1; del KEY; pttl KEY;
pexpire KEY 1; zadd KEY xx 0 x; zrem KEY x; unlink KEY; zrange KEY 0 0; zrank KEY x; zscore KEY x; zmscore KEY x;
zcard KEY; zcount KEY 0 0; zrangebyscore KEY 0 0; zrangebylex KEY - -; zlexcount KEY - -; hget KEY x;
hset KEY x 1 x; hdel KEY x; hlen KEY; hscan KEY 0; hincrby KEY x x;
publish CHANNEL x; subscribe CHANNEL; ping`
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

// Commands names the commands of fairlock that need the rights for a purpose; "" for Use. Those that look need no
// others, and those that operate need these as well.
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
var spare = []string{"+publish", "+subscribe", "+ping"}

// Rights is a command for redis-cli that makes a user with the least rights for something.
type Rights struct {
	For string `json:"for"`
	ACL string `json:"acl"`
}

// RightsIn are the least rights for what is done with locks in the namespace, one for each of Purposes.
func RightsIn(namespace string, before7 bool) (all []Rights) {
	texts := map[Purpose]string{Use: "use locks", Look: "look (" + Look.Commands() + ")", Operate: "operate (look, " +
		Operate.Commands() + ")"}
	users := map[Purpose]string{Use: "fairlock", Look: "fairlock-look", Operate: "fairlock-operate"}
	for _, purpose := range Purposes {
		needs := needsOf(purpose, namespace, before7)
		rules := slices.DeleteFunc([]string{needs.keys, needs.channels}, func(rule string) bool { return rule == "" })
		for _, command := range needs.commands {
			rules = append(rules, "+"+command)
		}
		all = append(all, Rights{texts[purpose], // go-redis asks a cluster for its slots
			"ACL SETUSER " + users[purpose] + " reset resetchannels on >password " + strings.Join(rules, " ") +
				" +cluster|slots"})
	}
	return all
}

// needs are rights, without the signs that ACL has before commands.
type needs struct {
	keys, channels string // rules; channels is empty if none are needed
	commands       []string
}

// needsOf are those for a purpose. A server before Redis 7 cannot restrict keys or scripts to reading. But without the
// right to commands that write, a script cannot write.
func needsOf(purpose Purpose, namespace string, before7 bool) needs {
	const (
		reads  = "time get pttl zrange zscore zcard zcount zrangebyscore zrangebylex zlexcount hget scan"
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
	glob := strings.Join(strings.FieldsFunc(keyspace.Glob(namespace), special), "?")
	return "~" + glob + ":*", "&" + glob + ":notify:*"
}

// confirming is how long the server may take to confirm a subscription.
const confirming = 3500 * time.Millisecond

// known are the replies of a server that knows the commands above, and lets the user call them. unable are those of a
// server that does not write now.
var (
	known  = regexp.MustCompile(`^(NOSCRIPT|ERR (hash )?value is not an integer|ERR wrong number of arguments)`)
	unable = regexp.MustCompile(
		`^(READONLY|MISCONF|OOM|NOREPLICAS|CLUSTERDOWN|LOADING|MASTERDOWN|BUSY|TRYAGAIN|MOVED|ASK) `)
)

// writing are the commands above that Redis lets nobody call who may only read the key.
var writing = strings.Fields("eval evalsha set del pexpire zadd zrem unlink hset hdel hincrby")

// rights tries every command that the user needs. A service that others run may not have one. Redis does not tell a
// user without the right to a command whether it may use the key or the channel. Another command shows that.
func (s *server) rights(ctx context.Context) (Finding, error) {
	major, _ := s.facts.version()
	needs := needsOf(s.For, s.Namespace, major == 6)
	var lacks, refused []string
	has, hidden := map[string]bool{}, map[string]bool{} // by the rules for keys and channels
	result := OK
	s.facts.writes, s.unnotified = "", false
	for attempt := range strings.SplitSeq(uses+";"+others, ";") {
		var args []any
		for word := range strings.FieldsSeq(attempt) {
			word = strings.Replace(word, "KEY", s.Namespace+":{"+s.name+"}:rights", 1)
			args = append(args, strings.Replace(word, "CHANNEL", s.Namespace+":notify:"+s.name, 1))
		}
		command := args[0].(string)
		if !slices.Contains(needs.commands, command) {
			continue
		}
		used := "" // the rule for what it uses
		switch {
		case strings.Contains(attempt, "CHANNEL"):
			used = needs.channels
		case strings.Contains(attempt, "KEY") && command != "scan":
			used = needs.keys
		}
		err := s.try(ctx, args)
		if err != nil && !inspect.Refused(err) {
			return Finding{}, err
		}
		lets := err == nil || errors.Is(err, redis.Nil) || known.MatchString(err.Error())
		if !lets && unable.MatchString(err.Error()) {
			s.facts.writes, lets = inspect.Message(err), true
		}
		if lets {
			has[used] = has[used] || used != needs.keys || s.For == Look || slices.Contains(writing, command)
			continue
		}
		rule := "+" + command
		if _, access, _ := strings.Cut(err.Error(), "access "); strings.Contains(access, "channel") ||
			strings.Contains(access, "key") {
			rule = used
		}
		switch {
		case !strings.HasPrefix(err.Error(), "NOPERM"):
			refused = append(refused, fmt.Sprintf("%s (%s)", command, inspect.Message(err)))
		case !slices.Contains(lacks, rule):
			lacks = append(lacks, rule)
		}
		hidden[used] = used != ""
		s.unnotified = s.unnotified || used == needs.channels && used != ""
		if result != Problem && (rule == needs.channels || slices.Contains(spare, rule)) {
			result = Warning // locks work without it, less well
		} else {
			result = Problem
		}
	}
	var perhaps []string
	for _, rule := range []string{needs.keys, needs.channels} {
		if hidden[rule] && !has[rule] && !slices.Contains(lacks, rule) {
			perhaps = append(perhaps, rule)
		}
	}
	if s.For == Look && major != 6 && !slices.Contains(lacks, "+eval_ro") && len(refused) == 0 {
		if err := s.writable(ctx); err != nil {
			return Finding{}, err
		}
	}
	return s.rightsFinding(result, lacks, perhaps, refused), nil
}

// writable learns whether the server writes now, for a user who may not write. Redis checks that before it refuses a
// script that does not promise to write nothing. So it refuses this one in any case.
func (s *server) writable(ctx context.Context) error {
	err := s.rdb.Do(ctx, "eval_ro", "#!lua\nreturn 1", 0).Err()
	if err != nil && !inspect.Refused(err) {
		return err
	}
	if err != nil && unable.MatchString(err.Error()) {
		s.facts.writes = inspect.Message(err)
	}
	return nil
}

// rightsFinding says which rights the user lacks or may lack, and which commands the server refuses to everybody.
func (s *server) rightsFinding(result Result, lacks, perhaps, refused []string) Finding {
	f := is(result, "the user has all rights that %s need", map[Purpose]string{Use: "locks", Look: Look.Commands(),
		Operate: "status, " + Operate.Commands()}[s.For])
	var found, advice []string
	if len(refused) > 0 {
		found = append(found, "the server refuses "+strings.Join(refused, ", "))
		advice = append(advice,
			"on a managed service, its documentation says how to enable these commands")
	}
	if len(lacks) > 0 {
		f.Own = len(refused) == 0
		f.Paste = "ACL SETUSER " + s.user() + " " + strings.Join(lacks, " ")
		text := "the user lacks " + strings.Join(lacks, " ")
		if len(perhaps) > 0 {
			text += ", and perhaps " + strings.Join(perhaps, " ") + ": Redis reveals that only to users with these commands"
		}
		found = append(found, text)
		if s.For == Use {
			advice = append(advice, "grant them; for an operator's user, see --for look or --for operate")
		}
	}
	if len(lacks) > 0 && len(perhaps) > 0 {
		advice = append(advice, "if Redis replies that a pattern has no effect, the user has that right already")
		for _, rule := range perhaps { // each in a line of its own, because then Redis refuses the whole line
			f.Paste += "\nACL SETUSER " + s.user() + " " + rule
		}
	}
	if len(found) > 0 {
		f.Found, f.Advice = strings.Join(found, "; "), strings.Join(advice, "; ")
	}
	return f
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
