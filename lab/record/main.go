// Command record writes the table of docs/promises.md. It reads what make states, make sim, make chaos and make mutants
// print from its standard input.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	page  = "docs/promises.md"
	begin = "<!-- written by make record -->\n"
	end   = "<!-- end -->\n"
)

func main() {
	text, err := os.ReadFile(page)
	if err == nil {
		var table string
		if table, err = write(os.Stdin, time.Now()); err == nil {
			before, rest, _ := strings.Cut(string(text), begin)
			_, after, _ := strings.Cut(rest, end)
			err = os.WriteFile(page, []byte(before+begin+table+end+after), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var (
	states  = regexp.MustCompile(`^([a-z ]+): all histories of (\d+) steps: (\d+) states, (\d+) steps`)
	seeds   = regexp.MustCompile(`^seeds \d+ to \d+: (\d+) seeds, (\d+) grants checked .*, (\S+) with faults`)
	chaos   = regexp.MustCompile(`^\s+check\.go:\d+:\s+(\d+) (.+)$`)
	mutants = regexp.MustCompile(`^\| (.*) \| (states \w+|test) \| (.*) \| \d+ \|$`)
)

// write returns the table of what the logs say.
func write(logs io.Reader, now time.Time) (string, error) {
	var kinds, counts, found []string
	byKind, byName := map[string]string{}, map[string]int{}
	var runs, grants int
	var faulty time.Duration
	lines := bufio.NewScanner(logs)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if m := states.FindStringSubmatch(lines.Text()); m != nil {
			if byKind[m[1]] == "" {
				kinds = append(kinds, m[1])
			}
			byKind[m[1]] = fmt.Sprintf("%s states in %s steps; all histories of %s steps", thousands(m[3]), thousands(m[4]),
				m[2])
		} else if m := seeds.FindStringSubmatch(lines.Text()); m != nil {
			length, err := time.ParseDuration(m[3])
			if err != nil {
				return "", err
			}
			runs, grants, faulty = runs+number(m[1]), grants+number(m[2]), faulty+length
		} else if m := chaos.FindStringSubmatch(lines.Text()); m != nil {
			if byName[m[2]] == 0 {
				counts = append(counts, m[2])
			}
			byName[m[2]] += number(m[1])
		} else if m := mutants.FindStringSubmatch(lines.Text()); m != nil {
			found = append(found, fmt.Sprintf("| %s | %s | %s |\n", m[1], m[2], m[3]))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n| what was tried until %s | how much |\n|---|---|\n", now.Format(time.DateOnly))
	for _, k := range kinds {
		fmt.Fprintf(&b, "| short histories: %s | %s |\n", k, byKind[k])
	}
	if runs > 0 {
		fmt.Fprintf(&b, "| simulation | %s grants checked in %s seeds, %v of simulated time with faults |\n",
			thousands(strconv.Itoa(grants)), thousands(strconv.Itoa(runs)), faulty)
	}
	slices.Sort(counts)
	for _, name := range counts {
		fmt.Fprintf(&b, "| fault runs: %s | %s |\n", name, thousands(strconv.Itoa(byName[name])))
	}
	if slices.Sort(found); len(found) > 0 {
		b.WriteString("\n| a break of the code, or a bug that was there | found by | in |\n|---|---|---|\n" +
			strings.Join(found, ""))
	}
	b.WriteByte('\n')
	return b.String(), lines.Err()
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// thousands writes a number with commas.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
