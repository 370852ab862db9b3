package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// panel is a chart with logarithmic axes: one line for each series.
type panel struct {
	title  string
	xLabel string
	xs     []float64
	xNames []string
	series []series
}

// series has a value for each x; NaN if there is none.
type series struct {
	name string
	hue  int // its class in the picture's style
	ys   []float64
}

const (
	plotWidth, plotHeight = 250, 230 // of what lies between the axes
	left, right, top      = 56, 94, 44
	bottom                = 46
	panelWidth            = left + plotWidth + right
	panelHeight           = top + plotHeight + bottom
)

// The hues are far enough apart also for those who see fewer, and the lines are labelled.
const plotStyle = `svg { color: #1f2328 }
.ground { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.h0 { --c: #57606a } .h1 { --c: #0969da } .h2 { --c: #bf3989 } .h3 { --c: #9a6700 }
.h4 { --c: #1a7f37 } .h5 { --c: #8250df }
.line { fill: none; stroke: var(--c); stroke-width: 1.5 }
.h1.line { stroke-width: 3 }
.dot, .name { fill: var(--c) }
.h1.name { font-weight: bold }
@media (prefers-color-scheme: dark) {
	svg { color: #e6edf3 }
	.ground { fill: #0d1117 }
	.grid { stroke: #3d444d }
	.h0 { --c: #9198a1 } .h1 { --c: #4493f8 } .h2 { --c: #f778ba } .h3 { --c: #d29922 }
	.h4 { --c: #3fb950 } .h5 { --c: #ab7df8 }
}
`

// picture draws panels side by side.
func picture(title string, panels ...panel) string {
	var b strings.Builder
	width, height := len(panels)*panelWidth, panelHeight
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d"`+
			` font-family="system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif" font-size="12">
<title>%[3]s</title>
<style>
%[4]s</style>
<rect class="ground" width="100%%" height="100%%" rx="6"/>
`, width, height, html.EscapeString(title), plotStyle)
	for i, p := range panels {
		fmt.Fprintf(&b, "<g transform=\"translate(%d,0)\">\n%s</g>\n", i*panelWidth, p.draw())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// scale places logarithms between two pixels.
type scale struct{ low, high, from, to float64 }

func (s scale) at(v float64) float64 {
	return s.from + (math.Log(v)-math.Log(s.low))/(math.Log(s.high)-math.Log(s.low))*(s.to-s.from)
}

// around returns steps of 1, 2, 5, 10 … that enclose all values; only 1, 10, 100 … if there were too many.
func around(series []series) (steps []float64) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range series {
		for _, y := range s.ys {
			if !math.IsNaN(y) {
				low, high = min(low, y), max(high, y)
			}
		}
	}
	if low > high {
		low, high = 1, 1
	}
	for _, digits := range [][]float64{{1, 2, 5}, {1}} {
		if steps = enclosing(low, high, digits); len(steps) < 10 {
			break
		}
	}
	return steps
}

// enclosing returns these digits times powers of ten, from the last one up to low to the first one from high.
func enclosing(low, high float64, digits []float64) (steps []float64) {
	for exponent := math.Floor(math.Log10(low)); ; exponent++ {
		for _, digit := range digits {
			step := digit * math.Pow(10, exponent)
			if step <= low {
				steps = steps[:0]
			}
			steps = append(steps, step)
			if step >= high && len(steps) > 1 {
				return steps
			}
		}
	}
}

func (p panel) draw() string {
	var b strings.Builder
	text := func(x, y float64, class, anchor, s string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\" fill=\"currentColor\">%s</text>\n",
			x, y, class, anchor, html.EscapeString(s))
	}
	x := scale{p.xs[0], p.xs[len(p.xs)-1], left, left + plotWidth}
	steps := around(p.series)
	y := scale{steps[0], steps[len(steps)-1], top + plotHeight, top}
	text(left, 24, "title", "start", p.title)
	for _, step := range steps {
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M %d,%.1f h %d\"/>\n", left, y.at(step), plotWidth)
		text(left-6, y.at(step)+4, "step", "end", fmt.Sprintf("%g", step))
	}
	for i, name := range p.xNames {
		text(x.at(p.xs[i]), top+plotHeight+18, "step", "middle", name)
	}
	text(left+plotWidth/2, top+plotHeight+38, "label", "middle", p.xLabel)
	for i, at := range p.labels(y) {
		s := p.series[i]
		var points []string
		for j, v := range s.ys {
			if !math.IsNaN(v) {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(p.xs[j]), y.at(v)))
			}
		}
		if len(points) == 0 {
			continue
		}
		fmt.Fprintf(&b, "<polyline class=\"h%d line\" points=\"%s\"/>\n", s.hue, strings.Join(points, " "))
		for _, point := range points {
			cx, cy, _ := strings.Cut(point, ",")
			fmt.Fprintf(&b, "<circle class=\"h%d dot\" cx=\"%s\" cy=\"%s\" r=\"2.5\"/>\n", s.hue, cx, cy)
		}
		fmt.Fprintf(&b, "<text class=\"h%d name\" x=\"%d\" y=\"%.1f\">%s</text>\n",
			s.hue, left+plotWidth+8, at+4, html.EscapeString(s.name))
	}
	return b.String()
}

// labels returns where the name of each series stands: beside its last value, and not upon another name.
func (p panel) labels(y scale) []float64 {
	const apart = 14
	at := make([]float64, len(p.series))
	order := make([]int, len(p.series))
	for i, s := range p.series {
		order[i], at[i] = i, math.Inf(1)
		for _, v := range s.ys {
			if !math.IsNaN(v) {
				at[i] = y.at(v)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	for range order { // push neighbours apart until none are too close
		for i := 1; i < len(order); i++ {
			a, b := order[i-1], order[i]
			if overlap := apart - (at[b] - at[a]); overlap > 0 {
				at[a] -= overlap / 2
				at[b] += overlap / 2
			}
		}
	}
	return at
}
