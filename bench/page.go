package main

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed page.md.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"join": strings.Join, "number": number, "time": words,
}).Parse(pageText))

// document is what the page's template is given.
type document struct {
	*results
	Many, Clients int
	TTL, CrashTTL time.Duration
}

// page returns docs/benchmarks.md.
func (r *results) page() string {
	var b strings.Builder
	if err := pageTemplate.Execute(&b, document{r, many, clients, ttl, crashTTL}); err != nil {
		panic(err) // the template does not fit its document
	}
	return b.String()
}

// number writes three digits at most, and at least two.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1 || a < 0.0005:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
}

// row is one of a table: a value for each peer.
type row struct {
	title string
	value func(peer string) (float64, bool)
}

// table has a column for each peer. A peer without a value in any row has none.
func (r *results) table(corner string, rows ...row) string {
	var names []string
	for _, p := range r.Peers {
		for _, row := range rows {
			if _, ok := row.value(p.Name); ok {
				names = append(names, p.Name)
				break
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s |\n|---|%s", corner, strings.Join(names, " | "), strings.Repeat("---:|", len(names)))
	for _, row := range rows {
		fmt.Fprintf(&b, "\n| %s |", row.title)
		for _, name := range names {
			if v, ok := row.value(name); ok {
				fmt.Fprintf(&b, " %s |", number(v))
			} else {
				b.WriteString(" |")
			}
		}
	}
	return b.String()
}

// of binds a figure of the results to a setting.
func of(figure func(setting, string) (float64, bool), s setting) func(string) (float64, bool) {
	return func(peer string) (float64, bool) { return figure(s, peer) }
}

// others is of, without the bare pair: it is what the others are related to, or it does something else.
func others(figure func(setting, string) (float64, bool), s setting) func(string) (float64, bool) {
	return func(peer string) (float64, bool) {
		if peer == barePair.name {
			return 0, false
		}
		return figure(s, peer)
	}
}

// Lost is the section about lost updates.
func (d document) Lost() string {
	if d.lost == nil {
		return "`go run ./bench -lost-updates` counts them.\n"
	}
	return d.lost.text()
}

func (d document) Compared() string {
	handoffs := setting{Workload: handoff, Contenders: many}
	return d.table("",
		row{"handoffs to a waiter, in the time of one bare pair", others(d.rate, handoffs)},
		row{"commands for each grant", others(d.commandsEach, handoffs)},
		row{"grants to the same again, %", others(d.sameAgain, handoffs)},
		row{fmt.Sprintf("%d idle waiters: commands per second", waiters),
			of(d.commands, setting{Workload: idle, Contenders: waiters})},
		row{"crashed holder: next grant after the end of TTL, ms", of(d.beyondTTL, setting{Workload: crash})},
		row{"free locks, one goroutine: pairs", others(d.rate, setting{Workload: uncontended})},
		row{fmt.Sprintf("free locks, %[1]d goroutines: pairs, in relation to %[1]d with bare pairs", many),
			others(d.rate, setting{Workload: parallel, Contenders: many})},
	)
}

// ByContenders has a row for each number of contenders.
func (d document) ByContenders() string {
	var rows []row
	for _, n := range d.contenders() {
		rows = append(rows, row{strconv.Itoa(n), others(d.rate, setting{Workload: handoff, Contenders: n})})
	}
	return d.table("contenders", rows...)
}

// words writes a time for readers.
func words(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }

func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'g', -1, 64)
}

// Stalls names the peers whose Lock of a free name did not return in time.
func (d document) Stalls() (all []string) {
	for _, p := range d.Peers {
		if n := d.stalled(p.Name); n > 0 {
			all = append(all, fmt.Sprintf(
				"In %d measurements, a `Lock` of %s on a free name did not return within the %s that they lasted.",
				n, p.Name, words(d.Slice)))
		}
	}
	return all
}

// lines returns a series for each peer but the bare pair.
func (r *results) lines(settings []setting, figure func(setting, string) (float64, bool)) (all []series) {
	for i, p := range peers {
		if p.free {
			continue
		}
		s, any := series{name: p.name, hue: i}, false
		for _, one := range settings {
			v, ok := figure(one, p.name)
			if any = any || ok && v > 0; !ok || v <= 0 { // there is no logarithm
				v = math.NaN()
			}
			s.ys = append(s.ys, v)
		}
		if any {
			all = append(all, s)
		}
	}
	return all
}

// contendersPicture is that of the README.
func (r *results) contendersPicture() string {
	p := panel{xLabel: "contenders"}
	var settings []setting
	for _, n := range r.contenders() {
		settings = append(settings, setting{Workload: handoff, Contenders: n})
		p.xs, p.xNames = append(p.xs, float64(n)), append(p.xNames, strconv.Itoa(n))
	}
	rates, commands := p, p
	rates.title, rates.series = "handoffs to a waiter, in the time of one bare pair", r.lines(settings, r.rate)
	commands.title, commands.series = "commands for each grant", r.lines(settings, r.commandsEach)
	return picture("Handoffs to a waiter, and commands for each grant, over the number of contenders", rates, commands)
}

func (r *results) networkPicture() string {
	p := panel{xLabel: "round trip that is added, ms"}
	var free, handoffs []setting
	for i, rtt := range r.rtts() {
		free, handoffs = append(free, setting{Workload: uncontended, RTT: rtt}), append(handoffs, setting{handoff, many, rtt})
		p.xs, p.xNames = append(p.xs, math.Exp(float64(i))), append(p.xNames, milliseconds(rtt)) // 0 has no logarithm
	}
	rates, pairs := p, p
	rates.title, rates.series = "handoffs to a waiter, in the time of one bare pair", r.lines(handoffs, r.rate)
	pairs.title, pairs.series = "free locks, one goroutine: pairs, beside bare pairs", r.lines(free, r.rate)
	return picture("Rates over the round trip", rates, pairs)
}
