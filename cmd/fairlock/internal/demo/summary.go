package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// summary says what came of it all, in lines; err is why it could not be played to the end.
func (s *setup) summary(cfg Config, v Result, took time.Duration, err error) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "\n%s: %d clients × %d workers on one %s for %.1fs, %s\n\n",
		strong.Render("fairlock demo"), cfg.Clients, cfg.Workers, cfg.title(), took.Seconds(), s.where())
	row := func(label, text string) { _, _ = fmt.Fprintf(&b, "  %-18s %s\n", label, text) }
	row("grants", strong.Render(strconv.Itoa(v.Grants)))
	row("", quiet.Render(shares(v.ByClient, s.short)))
	if parts := cfg.parts(v); parts != "" {
		row("", quiet.Render(parts))
	}
	row("order violations", flag(v.Violations))
	row(cfg.overlaps(), flag(v.Overlaps))
	row("fences not rising", flag(v.Fences))
	row("leases lost", strconv.Itoa(v.Lost))
	row("peak", cfg.peak(v))
	row("handoff", spreadText(v.Handoff)+quiet.Render("   from Unlock until the next in line is in"))
	row("wait", spreadText(v.Wait)+quiet.Render("   Lock called → Lock returned"))
	for _, crash := range v.Crashes {
		row(s.short(crash.Client)+" died", cfg.how(crash)+"; "+cfg.cost(crash))
	}
	if cfg.Redis != "" {
		row("left in Redis", cfg.numberKey(s.lock)+", for 10 min")
	}
	return b.String() + "\n" + cfg.conclusion(v, err) + "\n"
}

// how says how a client died.
func (c Contest) how(crash Crash) string {
	if crash.Held > 0 {
		return c.holding(crash.Held)
	}
	return fmt.Sprintf("with %d waiting", crash.Waiters)
}

func (c Contest) conclusion(v Result, err error) string {
	switch fault := v.Err(); {
	case fault != nil:
		return bad.Render("FAILED") + "  " + fault.Error()
	case err != nil:
		return bad.Render("UNFINISHED") + "  until then " + c.promise() + ", everybody in order"
	default:
		return good.Render("ok") + "  " + c.promise() + ", everybody in order"
	}
}
