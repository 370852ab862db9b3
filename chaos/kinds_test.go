package chaos_test

import (
	"time"

	"github.com/fairlock/fairlock-go/chaos/internal/proxy"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// lossy is a network that loses one message in twenty either way. A request is late for less than a patience: one that
// is later may be granted a lock that nobody holds, which is documented.
var lossy = proxy.Faults{Requests: 0.05, Replies: 0.05, Late: 0.02, Delay: patience * 9 / 10, Latency: 2 * ms}

// durable Redis has written down what it has answered. (Under everysec it may have put that off when it is killed: what
// it loses must be taken from it, to be known.)
var durable = []string{"--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--appendfsync", "always"}

var kinds = []kind{
	{
		name: "processes killed and stopped", short: 6 * sec, calm: true,
		actors: []actor{
			{"kill a process", 200 * ms, 600 * ms, killProcess},
			{"stop a process", 100 * ms, 300 * ms, stopProcess},
			{"stop another process", 100 * ms, 300 * ms, stopProcess},
		},
		least: map[string]int{
			"process killed": 5, "process stopped": 4, "process stopped for longer than TTL": 1, "events: granted": 50,
		},
	},
	{
		name: "messages lost", short: 7 * sec, net: &lossy, spare: true,
		actors: []actor{
			{"hang the network", 50 * ms, 300 * ms, hang},
			{"cut the network", 50 * ms, 300 * ms, cut},
			{"deafen subscriptions", 50 * ms, 300 * ms, deafen},
			{"slow the network, then hang it", 50 * ms, 300 * ms, slowThenHang},
			{"reset connections", 300 * ms, 800 * ms, resetConnections},
		},
		least: map[string]int{
			"requests lost": 25, "replies lost": 25, "requests late": 5, "network hung": 1, "network cut": 1,
			"network slow, then hung": 1,
			"subscription deaf":       1, "messages to the deaf": 1, "connections reset": 25, "connections silent": 25,
			"events: granted": 50,
		},
	},
	{
		name: "redis-server killed and shut down", short: 5 * sec, spare: true, args: durable,
		actors: []actor{
			{"kill redis-server", 200 * ms, 1200 * ms, killServer},
			{"shut redis-server down", 400 * ms, 1600 * ms, shutDown},
		},
		least: map[string]int{"redis-server killed": 1, "redis-server shut down": 1, "events: granted": 50},
	},
	{
		name: "redis-server loses a last second", short: 5 * sec, spare: true, robbed: true,
		args:   durable,
		actors: []actor{{"forget the last second", 300 * ms, sec, forgetLastSecond}},
		least:  map[string]int{"redis-server without its last second": 2, "events: granted": 50},
	},
	{
		name: "redis-server comes back empty", short: 7 * sec, spare: true, robbed: true,
		actors: []actor{
			{"forget everything", 1500 * ms, 3 * sec, forget},
			{"forget everything quietly", 300 * ms, sec, forgetQuietly},
		},
		least: map[string]int{
			"redis-server empty, while others ask": 1, "redis-server empty, while nobody else asks": 2,
			"lock with waiters when redis-server came back empty": 4, "events: granted": 50,
		},
	},
	{
		name: "redis-server stopped", short: 6 * sec, spare: true,
		actors: []actor{
			{"stop redis-server shortly", 200 * ms, sec, stopServerShortly},
			{"stop redis-server for long", sec, 2 * sec, stopServerForLong},
		},
		least: map[string]int{
			"redis-server stopped for half of TTL": 1, "redis-server stopped for twice the TTL": 1, "events: granted": 50,
		},
	},
	{
		name: "scripts flushed and clients killed", short: 4 * sec, spare: true,
		actors: []actor{
			{"flush scripts", 20 * ms, 200 * ms, flushScripts},
			{"kill clients", 20 * ms, 400 * ms, killClients},
			{"kill subscribers", 20 * ms, 400 * ms, killSubscribers},
		},
		least: map[string]int{
			"SCRIPT FLUSH": 10, "CLIENT KILL TYPE normal": 5, "CLIENT KILL TYPE pubsub": 5, "events: granted": 50,
		},
	},
	{
		name: "clock stepped back", short: 4 * sec, spare: true, skewed: true, wakes: true,
		actors: []actor{{"step the clock back", 200 * ms, 800 * ms, stepBack}},
		least:  map[string]int{"clock stepped back": 3, "events: granted": 50},
	},
	{
		name: "clock stepped", short: 5 * sec, spare: true, skewed: true, robbed: true, wakes: true,
		actors: []actor{{"step the clock", 200 * ms, 1500 * ms, stepAnyway}},
		least:  map[string]int{"clock stepped back": 1, "clock stepped forward": 1, "events: granted": 50},
	},
	{
		name: "everything", short: 8 * sec, net: &lossy, skewed: true, robbed: true, args: durable,
		actors: []actor{
			{"kill a process", 300 * ms, 2 * sec, killProcess},
			{"stop a process", 300 * ms, 2 * sec, stopProcess},
			{"hang the network", sec, 6 * sec, hang},
			{"cut the network", sec, 6 * sec, cut},
			{"deafen subscriptions", sec, 6 * sec, deafen},
			{"slow the network, then hang it", sec, 6 * sec, slowThenHang},
			{"reset connections", 500 * ms, 2 * sec, resetConnections},
			{"kill redis-server", 2 * sec, 8 * sec, killServer},
			{"shut redis-server down", 3 * sec, 10 * sec, shutDown},
			{"forget the last second", 4 * sec, 20 * sec, forgetLastSecond},
			{"stop redis-server shortly", sec, 6 * sec, stopServerShortly},
			{"stop redis-server for long", 2 * sec, 12 * sec, stopServerForLong},
			{"flush scripts", 200 * ms, sec, flushScripts},
			{"kill clients", 200 * ms, 2 * sec, killClients},
			{"kill subscribers", 200 * ms, 2 * sec, killSubscribers},
			{"step the clock", 2 * sec, 6 * sec, stepAnyway},
		},
		least: map[string]int{
			"process killed": 1, "process stopped": 1, "requests lost": 20, "replies lost": 20, "SCRIPT FLUSH": 2,
			"events: granted": 50,
		},
	},
}
