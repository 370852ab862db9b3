package doctor

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// What the server says of itself, and what that means. Nothing here does I/O.

// oldest is the first version on which fairlock is tested.
var oldest = [2]int{6, 2}

func version(f facts) Finding {
	product, number := f.product()
	advice := "upgrade to Redis 6.2 or later"
	switch {
	case number == "":
		return f.silent("version")
	case product == "valkey":
		return ok("Valkey %s, a Redis of 7.2 or later", number).with(map[string]any{"product": product, "version": number})
	case product != "redis":
		return warn("look at the check of locks: that is what counts", "%s %s; fairlock is tested on Redis",
			printable(product), printable(number)).with(map[string]any{"product": product, "version": number})
	}
	values := map[string]any{"product": product, "version": number}
	var major, minor int
	if n, _ := fmt.Sscanf(number, "%d.%d", &major, &minor); n != 2 {
		return unchecked(advice+", if it is older", "version %s", printable(number)).with(values)
	}
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return problem(advice, "Redis %s; SET … GET, which every grant needs, came with 6.2", printable(number)).with(values)
	}
	return ok("Redis %s", printable(number)).with(values)
}

// product returns whose server it is, in small letters, and its version.
func (f facts) product() (product, number string) {
	for _, other := range []string{"valkey", "dragonfly", "keydb"} {
		if v, told := f.info[other+"_version"]; told {
			return other, v
		}
	}
	if v, told := f.info["redis_version"]; told {
		return "redis", v
	}
	return strings.ToLower(f.hello["server"]), f.hello["version"]
}

// mode is standalone, cluster or sentinel; empty if it is not known.
func (f facts) mode() string {
	if m := f.hello["mode"]; m != "" {
		return m
	}
	return f.info["redis_mode"]
}

// replica reports whether it is one, if that is known.
func (f facts) replica() (is, known bool) {
	switch r := f.hello["role"] + f.info["role"]; {
	case r == "":
		return false, false
	case strings.Contains(r, "replica"), strings.Contains(r, "slave"):
		return true, true
	}
	return false, true
}

func role(f facts) Finding {
	is, known := f.replica()
	switch {
	case f.mode() == "sentinel":
		return problem("name the Sentinel's master in the URL; see --redis", "this is a Sentinel: it keeps no locks")
	case !known:
		return f.silent("role")
	case is:
		where := "the primary"
		if host := f.info["master_host"]; host != "" {
			where += ", " + printable(host+":"+f.info["master_port"])
		}
		return problem("connect to "+where+", or by Sentinel", "this is a replica: it takes no locks")
	}
	return ok("primary")
}

func eviction(f facts) Finding {
	policy, told := f.setting("maxmemory-policy", "maxmemory_policy")
	if !told {
		return f.silent("maxmemory-policy")
	}
	values := map[string]any{"maxmemory_policy": policy}
	const advice = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
	limit, known := f.number("maxmemory", "maxmemory")
	switch {
	case policy == "noeviction":
		return ok("maxmemory-policy is noeviction").with(values)
	case known && limit == 0:
		return warn(advice, "maxmemory-policy is %s; nothing is evicted as long as maxmemory is 0", policy).with(values)
	}
	return problem(advice, "maxmemory-policy is %s: an evicted key is a lock that two can hold, or a queue without order", policy).
		with(values)
}

// Shares of maxmemory from which on it is said.
const (
	muchMemory = 0.80
	fullMemory = 0.95
)

func memory(f facts) Finding {
	limit, told := f.number("maxmemory", "maxmemory")
	used, known := f.number("", "used_memory")
	switch {
	case !told || limit > 0 && !known:
		return f.silent("memory")
	case limit == 0:
		return ok("no limit (maxmemory 0)").with(map[string]any{"maxmemory_bytes": limit})
	}
	share := float64(used) / float64(limit)
	values := map[string]any{"used_bytes": used, "maxmemory_bytes": limit}
	found := fmt.Sprintf("%.0f %% of maxmemory used, %s left", 100*share, bytes(limit-used))
	const advice = "raise maxmemory, or find out what fills it: a full server refuses locks (OOM)"
	switch {
	case share >= fullMemory:
		return problem(advice, "%s", found).with(values)
	case share >= muchMemory:
		return warn(advice, "%s", found).with(values)
	}
	return ok("%s", found).with(values)
}

func bytes(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB", "EB"}
	v := float64(max(n, 0))
	i := 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return three(v) + " " + units[i]
}

// three is a number with three digits, or as many as it has before the point.
func three(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func persistence(f facts) Finding {
	if f.info["loading"] == "1" {
		return problem("wait, and call this again", "the server is still loading its data, and refuses everything")
	}
	if f.info["aof_last_write_status"] == "err" {
		return problem("look at its disk", "it cannot write its append-only file, and refuses to write (MISCONF)")
	}
	if stop := f.config["stop-writes-on-bgsave-error"]; f.info["rdb_last_bgsave_status"] == "err" && stop != "no" {
		if save, told := f.config["save"]; !told || save != "" {
			return problem("look at its disk and its log", "its last snapshot failed; it refuses to write until one succeeds (MISCONF)")
		}
	}
	on, told := f.setting("appendonly", "aof_enabled")
	if !told {
		return f.silent("persistence")
	}
	if on != "yes" && on != "1" {
		return warn("appendonly yes; without it, keep the port closed for the longest TTL after a restart",
			"appendonly is no: after a restart, waiters lose their places and a lock can go to a newcomer while its "+
				"holder still believes in it").with(map[string]any{"appendonly": false})
	}
	fsync := f.config["appendfsync"]
	values := map[string]any{"appendonly": true, "appendfsync": fsync}
	switch fsync {
	case "always":
		return ok("appendonly, appendfsync always: a grant is on disk before it is given").with(values)
	case "everysec":
		return ok("appendonly, appendfsync everysec: a crash may lose the grants of its last second").with(values)
	case "no":
		return warn("appendfsync everysec, or always",
			"appendfsync is no: a crash of the machine may lose the grants of half a minute").with(values)
	}
	return ok("appendonly; appendfsync is not told").with(map[string]any{"appendonly": true})
}

// replicaState is one replica as its primary sees it.
type replicaState struct {
	Address string `json:"address"`
	State   string `json:"state"`
	Lag     int64  `json:"lag_seconds"` // since it was last heard of
	Behind  int64  `json:"behind_bytes"`
}

// replicasOf reads INFO's lines `slave0:ip=…,port=…,state=…,offset=…,lag=…`.
func replicasOf(f facts) []replicaState {
	var all []replicaState
	end, _ := f.number("", "master_repl_offset")
	for i := 0; ; i++ {
		line, told := f.info["slave"+strconv.Itoa(i)]
		if !told {
			return all
		}
		is := map[string]string{}
		for part := range strings.SplitSeq(line, ",") {
			k, v, _ := strings.Cut(part, "=")
			is[k] = v
		}
		offset, _ := strconv.ParseInt(is["offset"], 10, 64)
		lag, _ := strconv.ParseInt(is["lag"], 10, 64)
		all = append(all, replicaState{
			Address: printable(is["ip"] + ":" + is["port"]), State: printable(is["state"]), Lag: lag, Behind: max(0, end-offset),
		})
	}
}

// longLag is Redis's own default for min-replicas-max-lag, in seconds.
const longLag = 10

func replicas(f facts) Finding {
	if f.noInfo != nil {
		return f.silent("replicas")
	}
	if is, _ := f.replica(); is {
		return unchecked("", "only a primary knows")
	}
	all := replicasOf(f)
	if len(all) == 0 {
		return ok("none: nothing is lost in a failover, and an outage of this server is one of its locks")
	}
	values := map[string]any{"replicas": all}
	var lag, behind int64
	for _, r := range all {
		lag, behind = max(lag, r.Lag), max(behind, r.Behind)
		if r.State != "online" {
			return warn("wait until it is online, or repair it: until then it is of no use in a failover",
				"replica %s is not online (%s)", r.Address, r.State).with(values)
		}
	}
	found := fmt.Sprintf("%d, heard of within %d s, at most %s behind", len(all), lag, bytes(behind))
	if lag > longLag {
		return warn("look at the replica and the network: what it has not got, a failover forgets", "%s", found).with(values)
	}
	return ok("%s", found).with(values)
}

func minReplicas(f facts) Finding {
	if is, _ := f.replica(); is {
		return unchecked("", "only of interest on a primary")
	}
	have := len(replicasOf(f))
	want, told := f.number("min-replicas-to-write", "")
	good, counted := f.number("", "min_slaves_good_slaves") // told only if some are wanted
	if !told && !counted {
		if f.noInfo == nil && have == 0 {
			return ok("there are no replicas")
		}
		return f.silent("min-replicas-to-write")
	}
	switch {
	case want > 0 && counted && good < want:
		return problem("repair the replicas, or lower min-replicas-to-write",
			"min-replicas-to-write is %d, and %d are near enough: every lock is refused (NOREPLICAS)", want, good)
	case told && want == 0 && have > 0:
		return warn("min-replicas-to-write 1 and min-replicas-max-lag 10",
			"min-replicas-to-write is 0: a primary cut off from its replicas goes on granting what a failover will forget")
	case told && want == 0:
		return ok("0, and there are no replicas")
	}
	return ok("min-replicas-to-write is set: a primary cut off from its replicas stops granting")
}

// brief is a duration with three digits.
func brief(d time.Duration) string {
	unit, name := time.Microsecond, "µs"
	switch {
	case d.Abs() >= time.Second:
		unit, name = time.Second, "s"
	case d.Abs() >= time.Millisecond:
		unit, name = time.Millisecond, "ms"
	}
	return three(float64(d)/float64(unit)) + " " + name
}
