//go:build nightly

package metrics_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	promfairlock "github.com/fairlock/fairlock-go/contrib/prometheus"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

const folder = "../../contrib/prometheus/"

// exported returns the labels of each time series that contrib/prometheus exports, by name, with those that Prometheus
// adds.
func exported(t *testing.T) (all map[string][]string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		metrics := promfairlock.New(promfairlock.Config{Name: func(lock string) string { return lock }})
		s := fairlocktest.NewServer(t)
		client := s.Client(fairlock.Config{Trace: metrics.Trace()})
		locks, err := promfairlock.NewLockCollector(client.Redis, promfairlock.LockConfig{Mutexes: []string{"x"}})
		require.NoError(t, err)
		registry.MustRegister(metrics, locks)
		_, err = client.Mutex("x").Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(bounds.DefaultTTL)

		families, err := registry.Gather()
		require.NoError(t, err)
		all = map[string][]string{}
		for _, f := range families {
			names := []string{"job", "instance"}
			for _, l := range f.GetMetric()[0].GetLabel() {
				names = append(names, l.GetName())
			}
			if f.GetMetric()[0].GetHistogram() == nil {
				all[f.GetName()] = names
				continue
			}
			all[f.GetName()+"_count"], all[f.GetName()+"_sum"] = names, names
			all[f.GetName()+"_bucket"] = append(slices.Clone(names), "le")
		}
	})
	return all
}

// checkExpr checks that an expression is one of PromQL, and that each name and label in it is exported. It returns the
// metrics in it, and the labels of its result.
func checkExpr(t *testing.T, all map[string][]string, expr string) (used, result []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	require.NoError(t, err, expr)
	var known []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		require.Contains(t, all, selector.Name, expr)
		used, known = append(used, selector.Name), append(known, all[selector.Name]...)
		for _, m := range selector.LabelMatchers {
			if m.Name != model.MetricNameLabel {
				assert.Contains(t, all[selector.Name], m.Name, expr)
			}
		}
		return nil
	})
	require.NotEmpty(t, used, expr)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			assert.False(t, a.Without, expr)
			assert.Subset(t, known, a.Grouping, expr)
			result = append(result, a.Grouping...)
		}
		return nil
	})
	return used, result
}

// metricOf returns the name of the metric of a time series.
func metricOf(series string) string {
	return regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(series, "")
}

// Each panel of the dashboard shows metrics that are exported, and each metric has a panel.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(folder + "dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Templating struct {
			List []struct {
				Name, Type, Definition string
			}
		}
		Panels []struct {
			Type, Title string
			Datasource  struct{ Type, UID string }
			Targets     []struct{ Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	all := exported(t)

	variables := []string{"$__rate_interval", "5m"}
	for _, v := range dashboard.Templating.List {
		if v.Type == "datasource" {
			assert.Equal(t, "datasource", v.Name)
			continue
		}
		variables = append(variables, "$"+v.Name, "x")
		query := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		require.NotNil(t, query, v.Definition)
		assert.Contains(t, all[query[1]], query[2])
	}
	shown := map[string]bool{}
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
		assert.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			expr := strings.NewReplacer(variables...).Replace(target.Expr)
			assert.NotContains(t, expr, "$", "an unknown variable")
			used, result := checkExpr(t, all, expr)
			for _, s := range used {
				shown[metricOf(s)] = true
			}
			for _, label := range regexp.MustCompile(`\{\{(.*?)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.Contains(t, result, label[1], target.LegendFormat)
			}
		}
	}
	for s := range all {
		assert.True(t, shown[metricOf(s)], "no panel shows %s", s)
	}
}

// rule is one of alerts.yaml.
type rule struct {
	Alert, Expr, For    string
	KeepFiringFor       string `yaml:"keep_firing_for"`
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(folder + "alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

// Each alert rule is one that Prometheus reads, asks for metrics that are exported, and says what to do.
func TestAlertRules(t *testing.T) {
	all := exported(t)
	pending := map[string]string{} // for how long
	for _, r := range alertRules(t) {
		assert.NotContains(t, pending, r.Alert, "there are two rules")
		pending[r.Alert] = r.For
		assert.NotEmpty(t, r.Labels["severity"], r.Alert)
		_, result := checkExpr(t, all, r.Expr)
		assert.NotRegexp(t, `[^\]] offset`, r.Expr, "%s: a value at one time is not there if a scrape failed then", r.Alert)
		for _, a := range []string{"summary", "description", "runbook_url"} {
			require.NotEmpty(t, r.Annotations[a], "%s: %s", r.Alert, a)
			for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations[a], -1) {
				assert.Contains(t, result, label[1], r.Alert)
			}
		}
		const repository = "https://github.com/fairlock/fairlock-go/blob/main/"
		assert.Equal(t, repository+"docs/instrumentation.md#what-to-alert-on", r.Annotations["runbook_url"], r.Alert)
	}
	guide, err := os.ReadFile("../../docs/instrumentation.md")
	require.NoError(t, err)
	explained := map[string]string{} // there, by expressions that are shorter
	for _, row := range regexp.MustCompile(
		"(?m)^\\| (Fairlock\\w+) \\| `(.*?)`(?: for (\\w+))? \\|").FindAllStringSubmatch(string(guide), -1) {
		explained[row[1]] = row[3]
		checkExpr(t, all, strings.ReplaceAll(row[2], `\|`, "|"))
	}
	assert.Equal(t, pending, explained)
}
