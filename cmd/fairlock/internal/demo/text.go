package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// brief is a duration in a few characters.
func brief(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
}

// spreadText shows how long something took.
func spreadText(s Spread) string {
	if s.N == 0 {
		return "none"
	}
	return fmt.Sprintf("p50 %s  p99 %s", brief(s.P50), brief(s.P99))
}

// cost says what a crash has cost the others, beside the setting that it depends on.
func (c Config) cost(crash Crash) string {
	setting := fmt.Sprintf("WaiterTTL %v", c.WaiterTTL)
	if crash.Held > 0 {
		setting = fmt.Sprintf("TTL %v", c.TTL)
	}
	switch {
	case crash.Served == 0:
		return "nobody got in after it"
	case crash.Stall == 0:
		return "nobody was held up"
	default:
		return fmt.Sprintf("others were held up for %s at most (%s)", brief(crash.Stall), setting)
	}
}

// shares says how many grants each client got.
func shares(byClient map[string]int, short func(string) string) string {
	clients := slices.SortedFunc(maps.Keys(byClient), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) // client-2 before client-10
	})
	all := make([]string, len(clients))
	for i, client := range clients {
		all[i] = fmt.Sprintf("%s %d", short(client), byClient[client])
	}
	return strings.Join(all, " · ")
}
