//go:build unix

package chaos

import (
	"time"

	"github.com/fairlock/fairlock-go/lab/chaos/internal/proxy"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// Scenario is a kind of run on a redis-server: what goes wrong in it, and how often.
type Scenario struct {
	Name     string
	duration time.Duration  // of the faults in the short form
	faults   []fault        // each is caused again and again
	least    map[string]int // what must happen at least in the short form: the faults go on until then
	topology topology       // nil: one server
	args     []string       // of redis-server
	ttl      time.Duration  // TTL and WaiterTTL of all clients, which outlast what goes wrong; 0: shorter ones
	net      *proxy.Faults  // of every process, always; nil: no proxies
	skewed   bool           // the server's clock can be stepped
	lossy    bool           // Redis may take a lease away
	split    bool           // two primaries may grant a lock at once
	calm     bool           // Redis and the way to it work
	notified bool           // notifications are not lost
	finish   bool           // in the end the workers finish; otherwise their processes are killed
}

// fault makes one thing go wrong.
type fault struct {
	name        string
	least, most time.Duration // between two times
	cause       func(t *trial, d dice) error
}

// lossy is a network that loses one message in twenty either way. A request is late by less than a WaiterTTL: a later
// one may be granted a lock that nobody holds, as docs/promises.md says.
var lossy = proxy.Faults{Requests: 0.05, Replies: 0.05, Late: 0.02, Delay: waiterTTL * 9 / 10, Latency: 2 * ms}

// durable Redis has written to disk what it has answered. (With everysec it may have put that off when it is killed:
// what it loses is taken from it, so that it is known.)
var durable = []string{"--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--appendfsync", "always"}

// inCluster is a cluster that elects a replica in place of a master after a second.
var inCluster = []string{"--cluster-node-timeout", "1000"}

// outlasting is the TTL of leases and tickets that outlast a failover or the move of a slot.
const outlasting = 15 * sec

// Scenarios are all of them.
var Scenarios = []Scenario{
	{
		Name: "processes killed and stopped", duration: 6 * sec, calm: true,
		faults: []fault{
			{"kill a process", 200 * ms, 600 * ms, killProcess},
			{"stop a process", 100 * ms, 300 * ms, stopProcess},
			{"stop another process", 100 * ms, 300 * ms, stopProcess},
		},
		least: map[string]int{
			"process killed": 5, "process stopped": 4, "process stopped for longer than TTL": 1, "events: granted": 50,
		},
	},
	{
		Name: "messages lost", duration: 7 * sec, net: &lossy, finish: true,
		faults: []fault{
			{"hang the network", 50 * ms, 300 * ms, worsen("network hung", func(f *proxy.Faults) { f.Hung = true })},
			{"cut the network", 50 * ms, 300 * ms, worsen("network cut", func(f *proxy.Faults) { f.Cut = true })},
			{"mute subscriptions", 50 * ms, 300 * ms, worsen("subscription mute", func(f *proxy.Faults) { f.Mute = true })},
			{"slow the network, then hang it", 50 * ms, 300 * ms, slowThenHang},
			{"reset connections", 300 * ms, 800 * ms, resetConnections},
		},
		least: map[string]int{
			"requests lost": 25, "replies lost": 25, "requests late": 5, "network hung": 1, "network cut": 1,
			"network slow, then hung": 1, "subscription mute": 1, "messages to mute subscriptions": 1,
			"connections reset": 25, "connections silent": 25, "events: granted": 50,
		},
	},
	{
		Name: "redis-server killed and shut down", duration: 5 * sec, finish: true, args: durable,
		faults: []fault{
			{"kill redis-server", 200 * ms, 1200 * ms, killServer},
			{"shut redis-server down", 400 * ms, 1600 * ms, shutDownServer},
		},
		least: map[string]int{"redis-server killed": 1, "redis-server shut down": 1, "events: granted": 50},
	},
	{
		Name: "redis-server loses its last second", duration: 5 * sec, finish: true, lossy: true, args: durable,
		faults: []fault{{"lose the last second", 300 * ms, sec, loseLastSecond}},
		least:  map[string]int{"redis-server without its last second": 2, "events: granted": 50},
	},
	{
		Name: "redis-server comes back empty", duration: 7 * sec, finish: true, lossy: true,
		faults: []fault{
			{"lose everything", 500 * ms, 2 * sec, loseEverything},
		},
		least: map[string]int{"redis-server empty": 2, "events: granted": 50},
	},
	{
		Name: "redis-server stopped", duration: 6 * sec, finish: true,
		faults: []fault{
			{"stop redis-server for half of TTL", 200 * ms, sec, stopServer("redis-server stopped for half of TTL", ttl/2)},
			{"stop redis-server for twice the TTL", sec, 2 * sec, stopServer("redis-server stopped for twice the TTL", 2*ttl)},
		},
		least: map[string]int{
			"redis-server stopped for half of TTL": 1, "redis-server stopped for twice the TTL": 1, "events: granted": 50,
		},
	},
	{
		Name: "scripts flushed and clients killed", duration: 4 * sec, finish: true,
		faults: []fault{
			{"flush scripts", 20 * ms, 200 * ms, flushScripts},
			{"kill clients", 20 * ms, 400 * ms, killClients},
			{"kill subscribers", 20 * ms, 400 * ms, killSubscribers},
		},
		least: map[string]int{
			"SCRIPT FLUSH": 10, "CLIENT KILL TYPE normal": 5, "CLIENT KILL TYPE pubsub": 5, "events: granted": 50,
		},
	},
	{
		Name: "clock stepped back", duration: 4 * sec, finish: true, skewed: true, notified: true,
		faults: []fault{{"step the clock back", 200 * ms, 800 * ms, stepBack}},
		least:  map[string]int{"clock stepped back": 3, "events: granted": 50},
	},
	{
		Name: "clock stepped", duration: 5 * sec, finish: true, skewed: true, lossy: true, notified: true,
		faults: []fault{{"step the clock", 200 * ms, 1500 * ms, step}},
		least:  map[string]int{"clock stepped back": 1, "clock stepped forward": 1, "events: granted": 50},
	},
	{
		Name: "Sentinel, primary killed", duration: 20 * sec, finish: true, lossy: true, topology: threeSentinels,
		ttl:    outlasting,
		faults: []fault{{"kill the primary", sec, 4 * sec, killPrimary}},
		least:  map[string]int{"failovers": 1, "events: granted": 50},
	},
	{
		Name: "Sentinel, planned failover", duration: 15 * sec, finish: true, lossy: true, split: true,
		topology: threeSentinels,
		ttl:      outlasting,
		faults:   []fault{{"fail over", sec, 4 * sec, failOver}},
		least:    map[string]int{"planned failover": 1, "events: granted": 50},
	},
	{
		Name: "Cluster, master killed", duration: 20 * sec, finish: true, lossy: true, topology: threeMastersAndReplica,
		args:   inCluster,
		ttl:    outlasting,
		faults: []fault{{"kill the master", sec, 4 * sec, killPrimary}},
		least:  map[string]int{"failovers": 1, "events: granted": 50},
	},
	{
		Name: "Cluster, slots move", duration: 8 * sec, finish: true, topology: threeMasters, ttl: outlasting,
		faults: []fault{{"move a slot", ms, 500 * ms, moveSlot}},
		least:  map[string]int{"slot moved": 2, "events: granted": 50},
	},
	{
		Name: "everything", duration: 8 * sec, net: &lossy, skewed: true, lossy: true, args: durable,
		faults: []fault{
			{"kill a process", 300 * ms, 2 * sec, killProcess},
			{"stop a process", 300 * ms, 2 * sec, stopProcess},
			{"hang the network", sec, 6 * sec, worsen("network hung", func(f *proxy.Faults) { f.Hung = true })},
			{"cut the network", sec, 6 * sec, worsen("network cut", func(f *proxy.Faults) { f.Cut = true })},
			{"mute subscriptions", sec, 6 * sec, worsen("subscription mute", func(f *proxy.Faults) { f.Mute = true })},
			{"slow the network, then hang it", sec, 6 * sec, slowThenHang},
			{"reset connections", 500 * ms, 2 * sec, resetConnections},
			{"kill redis-server", 2 * sec, 8 * sec, killServer},
			{"shut redis-server down", 3 * sec, 10 * sec, shutDownServer},
			{"lose the last second", 4 * sec, 20 * sec, loseLastSecond},
			{"stop redis-server for half of TTL", sec, 6 * sec, stopServer("redis-server stopped for half of TTL", ttl/2)},
			{"stop redis-server for twice the TTL", 2 * sec, 12 * sec,
				stopServer("redis-server stopped for twice the TTL", 2*ttl)},
			{"flush scripts", 200 * ms, sec, flushScripts},
			{"kill clients", 200 * ms, 2 * sec, killClients},
			{"kill subscribers", 200 * ms, 2 * sec, killSubscribers},
			{"step the clock", 2 * sec, 6 * sec, step},
		},
		least: map[string]int{
			"process killed": 1, "process stopped": 1, "requests lost": 20, "replies lost": 20, "SCRIPT FLUSH": 2,
			"events: granted": 50,
		},
	},
}
