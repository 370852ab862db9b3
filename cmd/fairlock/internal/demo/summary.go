package demo

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/judge"
)

// summary says what came of it all, in lines; err is why it could not be played to the end.
func (c *cast) summary(cfg Config, v judge.Verdict, took time.Duration, err error) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "\n%s: %d clients × %d workers on one lock for %.1fs, %s\n\n",
		strong.Render("fairlock demo"), cfg.Clients, cfg.Workers, took.Seconds(), c.where())
	row := func(label, text string) { _, _ = fmt.Fprintf(&b, "  %-18s %s\n", label, text) }
	row("grants", strong.Render(strconv.Itoa(v.Grants)))
	row("", quiet.Render(shares(v.ByClient, c.short)))
	row("order violations", flag(v.Violations))
	row("overlaps", flag(v.Overlaps))
	row("fences not growing", flag(v.Regressions))
	row("leases lost", strconv.Itoa(v.Lost))
	row("hand-off", spreadText(v.HandOff)+quiet.Render("   Unlock called → next Lock returned"))
	row("wait", spreadText(v.Wait)+quiet.Render("   Lock called → Lock returned"))
	for _, crash := range v.Crashes {
		row(c.short(crash.Client)+" died", epitaph(crash)+"; "+cfg.cost(crash))
	}
	if cfg.Redis != "" {
		row("left in Redis", fmt.Sprintf("fairlock:{%s}:fence, for a day", c.lock))
	}
	return b.String() + "\n" + conclusion(v, err) + "\n"
}

// epitaph says how a client died.
func epitaph(crash judge.Crash) string {
	if crash.Held {
		return "holding"
	}
	return fmt.Sprintf("with %d waiting", crash.Waiters)
}

func conclusion(v judge.Verdict, err error) string {
	switch fault := v.Err(); {
	case fault != nil:
		return bad.Render("FAILED") + "  " + fault.Error()
	case err != nil:
		return bad.Render("UNFINISHED") + "  until then one holder at a time, everybody in order"
	default:
		return good.Render("ok") + "  one holder at a time, everybody in order"
	}
}
