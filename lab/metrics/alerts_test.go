//go:build nightly

package metrics_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counted are the rules that alert when a counter rises, by the series that each test has of it.
var counted = map[string]string{
	"FairlockLeaseLost":        `fairlock_lease_losses_total{fairlock_namespace="n",error_type="expired"`,
	"FairlockRenewalsFail":     `fairlock_lease_renewals_total{fairlock_namespace="n",error_type="unreachable"`,
	"FairlockAcquisitionsFail": `fairlock_wait_duration_seconds_count{fairlock_namespace="n",error_type="refused"`,
	"FairlockQueueFull":        `fairlock_wait_duration_seconds_count{fairlock_namespace="n",error_type="queue_full"`,
}

// seriesSet is a storage.SeriesSet. Its first is the one where it is.
type seriesSet []storage.Series

func (s *seriesSet) Next() bool                      { *s = (*s)[1:]; return len(*s) > 0 }
func (s *seriesSet) At() storage.Series              { return (*s)[0] }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// firing returns in which minutes of two hours a rule has a result, for series that have a value each minute.
func firing(t *testing.T, expr string, series []string) (minutes []int) {
	t.Helper()
	var stored []storage.Series
	for _, text := range series {
		names, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(text)
		require.NoError(t, err)
		chunk := chunkenc.NewXORChunk()
		points, err := chunk.Appender()
		require.NoError(t, err)
		for i, v := range values {
			if !v.Omitted {
				points.Append(0, int64(i)*time.Minute.Milliseconds(), v.Value)
			}
		}
		stored = append(stored, &storage.SeriesEntry{Lset: names, SampleIteratorFn: chunk.Iterator})
	}
	chosen := func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := seriesSet{nil} // Next comes before At
		for _, s := range stored {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
				set = append(set, s)
			}
		}
		return &set
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	defer func() { require.NoError(t, engine.Close()) }()
	from := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: chosen}}
	query, err := engine.NewRangeQuery(t.Context(), from, nil, expr, time.Unix(0, 0), time.Unix(2*3600, 0), time.Minute)
	require.NoError(t, err)
	defer query.Close()
	matrix, err := query.Exec(t.Context()).Matrix()
	require.NoError(t, err)
	require.LessOrEqual(t, len(matrix), 1, "all is summed")
	for _, s := range matrix {
		for _, point := range s.Floats {
			minutes = append(minutes, int(time.Duration(point.T)*time.Millisecond/time.Minute))
		}
	}
	return minutes
}

// A rule fires for five minutes after its counter has risen, whether the series was there or not, and not because the
// series was away.
func TestAlertRules_Counters(t *testing.T) {
	t.Parallel()
	exprs := map[string]string{}
	for _, r := range alertRules(t) {
		exprs[r.Alert] = r.Expr
	}
	// An increase is of 10, which is above the threshold of FairlockRenewalsFail. A value is that of one minute, x10
	// repeats it ten times, and _ is a minute without one. Where a target is away, there is a stale marker in the first of
	// them.
	for name, test := range map[string]struct {
		series []string // of one replica each
		want   []int
	}{
		"rises":                          {[]string{"0x9 10x110"}, minutes(10)},
		"begins above 0":                 {[]string{"_x10 10x110"}, minutes(10)},
		"rests":                          {[]string{"1000x120"}, minutes(0)},
		"Prometheus is away":             {[]string{"10x9 _x59 10x50"}, minutes(0)},
		"the target is away":             {[]string{"10x9 stale _x58 10x50"}, minutes(0)},
		"rises while Prometheus is away": {[]string{"10x9 _x59 20x50"}, minutes(0, 69)},
		"restarts":                       {[]string{"100x9 0x50 0x59"}, minutes(0)},
		"restarts, and rises":            {[]string{"100x9 0x9 10x100"}, minutes(0, 20)},
		"restarts, and begins above 0":   {[]string{"100x9 stale _x8 10x100"}, minutes(0, 19)},
		"rises, and its process ends":    {[]string{"0x9 10 stale"}, minutes(10)},
		"begins, and its process ends":   {[]string{"_x10 10 stale"}, minutes(10)},
		"one replica of three rises":     {[]string{"1000x120", "0x120", "500x29 510x90"}, minutes(0, 30)},
		"another replica begins":         {[]string{"1000x120", "_x30 10x80"}, minutes(0, 30)},
		"one restarts, another rises":    {[]string{"1000x29 0x90", "0x29 10x90"}, minutes(0, 30)},
		"all restart, one after another": {[]string{"1000x29 0x90", "1000x30 stale 0x88", "1000x31 stale _x80"}, minutes(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, alert := range slices.Sorted(maps.Keys(counted)) {
				var series []string
				for i, points := range test.series {
					series = append(series, fmt.Sprintf(`%s,fairlock_kind="mutex",instance="%d",otel_scope_name="otelfairlock"} %s`,
						counted[alert], i, points))
				}
				assert.Equal(t, test.want, firing(t, exprs[alert], series), alert)
			}
		})
	}
}

// minutes returns five from each of these on.
func minutes(begins ...int) (all []int) {
	for _, begin := range begins {
		for i := range 5 {
			all = append(all, begin+i)
		}
	}
	return all
}
