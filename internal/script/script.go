package script

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/lua"
)

// script is a script with its range of keys.
type script struct {
	dispatch.Script

	from, to int // of the lock's keys
}

// kind is a kind of lock. Its store has the holders, its line says which waiter is next.
type kind struct {
	keys  []key    // in the order of KEYS: the number, those of the store, the queue and others of waiters, the tombstones
	early string   // how the names of the parts for an idle lock begin
	first []string // files before these parts
	store []string // files of the line and of the store, as one needs the other
	infix string   // in the names of its keys, before their ends
	size  bool     // whether it can be resized
	built map[string]func() script
}

// key is the end of a key's name, and its type in Redis.
type key struct{ name, redisType string }

var (
	mutex = kind{
		keys: []key{{"number", "string"}, {"lock", "string"}, {"queue", "zset"}, {"heartbeats", "zset"},
			{"tombstones", "zset"}},
		first: []string{"mutex/held"},
		early: "mutex/early_",
		store: []string{"fifo/line", "mutex/store"},
	}
	permits = kind{
		keys: []key{
			{"number", "string"}, {"permits", "zset"}, {"holders", "hash"}, {"queue", "zset"},
			{"heartbeats", "zset"}, {"resized", "string"}, {"tombstones", "zset"},
		},
		early: "permits/early_",
		store: []string{"permits/keep", "fifo/line", "permits/store"},
		infix: "sem:",
		size:  true,
	}
	keyed = kind{
		keys: []key{
			{"number", "string"}, {"permits", "zset"}, {"holders", "hash"}, {"queue", "zset"},
			{"heartbeats", "zset"}, {"lines", "zset"}, {"turns", "zset"}, {"resized", "string"}, {"tombstones", "zset"},
		},
		early: "keyed/early_",
		store: []string{"permits/keep", "keyed/line", "permits/store"},
		infix: "key:",
		size:  true,
	}
	rwMutex = permits.with("rw:") // its writers need all permits
	kinds   = map[string]*kind{"mutex": &mutex, "semaphore": &permits, "keyed": &keyed, "rwmutex": &rwMutex}
)

// with returns the same kind with other keys.
func (k kind) with(infix string) kind {
	k.infix = infix
	return k
}

func init() {
	for _, k := range kinds {
		k.built = map[string]func() script{}
		for name, v := range verbs {
			if k.size || !v.ofPermits {
				k.built[name] = sync.OnceValue(func() script { return k.build(name, v) }) // when it is first used
			}
		}
	}
}

// The keys that verbs declare. A script runs only if all its keys are on one node. So a verb that must work while a
// cluster moves keys declares only those that exist.
const (
	allKeys       = iota
	lockAndQueue  // those that exist while somebody holds and somebody waits
	andSize       // these, and the number of permits that a resize has set
	keysOfHolders // those of the store
)

// span returns where these keys begin and end.
func (k kind) span(which int) (from, to int) {
	queue := slices.IndexFunc(k.keys, func(key key) bool { return key.name == "queue" })
	switch which {
	case lockAndQueue:
		return 0, slices.IndexFunc(k.keys, func(key key) bool { return key.name == "resized" || key.name == "tombstones" })
	case andSize:
		return 0, len(k.keys) - 1
	case keysOfHolders:
		return 1, queue
	default:
		return 0, len(k.keys)
	}
}

// verb is an operation on a lock.
type verb struct {
	file      string
	keys      int
	early     bool // whether there is a part for an idle lock
	ofPermits bool // a mutex does not have it

	// An urgent request does not wait behind the others of its client. If it were late, a lease or ticket could be lost,
	// or others would wait. A repeatable one is sent again on another connection after a second without a reply.
	urgent, repeatable bool
}

// To add a verb, change these files. Further tests of every verb are derived from the row in verbs_test.go. This shows
// all parts of a short verb: git grep -i -A14 'force.\?release' lua internal/tools/rules lab
//  1. a row here, and scripts/<verb>.lua. Its header names ARGV and the replies, and its first line binds the arguments
//     by these names, as they come. It may call the functions of facts.lua, number.lua and queue.lua, and those that
//     the headers of mutex/store.lua and fifo/line.lua list for all kinds of locks
//  2. in lock.go, a method of Lock that sends these arguments, and a function that reads the reply. Prefer checks of
//     input in the method; its error names the lock's first key. The error of a script says "the … is …"; explain
//     (reply.go) gives some of them a type
//  3. what it may do, and what its reply says: internal/tools/rules. The requests of each token in lab/states/world.go
//  4. a row in the table of verbs in verbs_test.go. Scenarios only of what short histories do not reach, such as
//     bounds, in testdata/scenarios, in the words that machine_test.go explains
//  5. a mutant of each rule that is the first for a promise about safety (lab/mutants/mutants.txt)
//  6. if waiters or leases send it, Requests in internal/wait/waiters.go, or Redis in internal/hold/holding.go, and the
//     fakes there. If users get it, a method in fairlock/lock.go, and methods of the kinds that have it (mutex.go,
//     semaphore.go, rwmutex.go). A scenario goes into fairlock/testdata/scenarios, and a line into the CHANGELOG. If
//     operators get it, a method of Client in admin, and its test there
//  7. its sender, in senders in internal/tools/doctor/rights_test.go. Then a test says which rights are missing
//
// A command that no script used before goes into the ACL lines of docs/operating.md and of fairlock doctor. Tests
// compare them with the scripts.
var verbs = map[string]verb{
	"acquire":       {file: "acquire", keys: allKeys, early: true, repeatable: true},
	"release":       {file: "release", keys: lockAndQueue, early: true, urgent: true, repeatable: true},
	"leave":         {file: "leave", keys: allKeys, repeatable: true},
	"force_release": {file: "force_release", keys: lockAndQueue, repeatable: true},
	"renew":         {file: "renew", keys: keysOfHolders, urgent: true},
	"resume":        {file: "resume", keys: allKeys, repeatable: true},
	"heartbeat":     {file: "heartbeat", keys: lockAndQueue, urgent: true},
	"inspect":       {file: "inspect", keys: andSize, repeatable: true},
	"resize":        {file: "permits/resize", keys: andSize, ofPermits: true},
}

// build builds the script of a verb. An early part acquires and releases an idle lock, before all other functions are
// defined. That repeats some of the rules, and costs half as much.
func (k kind) build(name string, v verb) script {
	from, to := k.span(v.keys)
	parts := append([]string{"facts"}, k.first...)
	if v.early {
		parts = append(parts, k.early+name)
	}
	parts = append(append(parts, k.store...), "number", "queue", v.file)
	names := make([]string, to-from)
	for i, key := range k.keys[from:to] {
		names[i] = key.name
	}
	text := withoutUnused(fmt.Sprintf("local call, fence_ttl = redis.call, tonumber(ARGV[1])\nlocal %s = unpack(KEYS)\n",
		strings.Join(names, ", ")) + join(parts...))
	return script{dispatch.NewScript(text), from, to}
}

// withoutUnused removes functions that a verb does not use, because Redis creates every function anew in every call. It
// goes from the end to the beginning, since a function is defined before its use. A top-level function begins and ends
// at the margin.
func withoutUnused(text string) string {
	lines := slices.Collect(strings.Lines(text))
	kept, function := make([]string, 0, len(lines)), []string(nil)
	words := map[string]bool{}
	keep := func(part ...string) {
		kept = append(kept, part...)
		for _, line := range part {
			line, _, _ = strings.Cut(line, " -- ")
			for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
				words[word] = true
			}
		}
	}
	for _, line := range slices.Backward(lines) {
		definition, begins := strings.CutPrefix(line, "local function ")
		name, _, _ := strings.Cut(definition, "(")
		switch {
		case begins && words[name]:
			keep(append(function, line)...)
			function = nil
			delete(words, name) // an earlier function of that name is another one
		case begins:
			function = nil
		case line == "end\n" || len(function) > 0 && line[0] == ' ':
			function = append(function, line)
		default:
			keep(append(function, line)...)
			function = nil
		}
	}
	slices.Reverse(kept)
	return strings.Join(kept, "")
}

// join joins files without their comments, because Redis keeps the text, and clients send it after a restart.
func join(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		for line := range strings.Lines(file(name)) {
			if trimmed := strings.TrimSpace(line); trimmed != "" && !strings.HasPrefix(trimmed, "--") {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// file returns the text of a script's file.
func file(name string) string {
	text, err := lua.Files.ReadFile(path.Join("scripts", name+".lua"))
	if err != nil {
		panic(err) // the files are embedded
	}
	return string(text)
}

// Source is the text of a script, and its verb, "" for Ping.
type Source struct{ Verb, Text string }

// Sources returns all scripts by their hashes, for a reader of commands such as a hook or a slow log.
var Sources = sync.OnceValue(func() map[string]Source {
	all := map[string]Source{pingScript.Hash: {"", pingScript.Text}}
	for _, k := range kinds {
		for verb, built := range k.built {
			s := built()
			all[s.Hash] = Source{verb, s.Text}
		}
	}
	return all
})

var pingScript = dispatch.NewScript(join("ping"))

// Ping runs a script that does what a lock needs, with an absent key of the namespace. On a cluster it runs on the node
// of that key's slot. An error means that the server cannot change locks now, or that the user lacks rights. It names
// the command that was refused.
func Ping(ctx context.Context, rdb Sender, namespace string) error {
	key := namespace + ":{ping}:absent" // no key of a lock ends so
	_, err := rdb.Send(ctx, dispatch.Request{Script: pingScript, Keys: []string{key}})
	if err == nil {
		return nil
	}
	what := "key"
	if at := refusedLine.FindStringSubmatch(err.Error()); at != nil { // Redis 7.0 does not name the command
		lines := strings.Split("\n"+pingScript.Text, "\n")
		line, _ := strconv.Atoi(at[1])
		what = command.FindString(lines[min(line, len(lines)-1)])
	}
	if meaning, _ := call.MeaningOf(err); meaning == call.Forbidden || what != "key" {
		err = fmt.Errorf("%s %q: %w", what, key, err)
	}
	return call.WithOrigin(err)
}

var (
	refusedLine = regexp.MustCompile(`@user_script: ?(\d+)`)
	command     = regexp.MustCompile(`[A-Z]+`)
)
