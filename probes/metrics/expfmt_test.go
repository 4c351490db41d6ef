package metrics

import (
	"fmt"
	"math"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// expfmt reads the same texts; every line that it finds must be found, with its value.
func TestParseAgreesWithExpfmt(t *testing.T) {
	for _, f := range fixtures {
		s := snapshot(t, f)
		if err := agree(s.Raw, s.Series); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		if len(s.Series) < 300 {
			t.Errorf("%s: only %d series", f, len(s.Series))
		}
	}
}

// agree compares the multisets of (type, name, labels, value), counters and gauges only,
// and the count and sum of histograms.
func agree(text string, series []Series) error {
	p := expfmt.NewTextParser(model.LegacyValidation)
	fams, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("expfmt: %w", err)
	}
	bits := func(v float64) uint64 {
		if math.IsNaN(v) {
			return math.Float64bits(math.NaN())
		}
		return math.Float64bits(v)
	}
	count := map[string]int{}
	for _, s := range series {
		if strings.HasSuffix(s.Name, "_bucket") || s.Type == "summary" {
			continue
		}
		var ls []string
		for l := s.Labels; l != ""; {
			n, v, rest, _ := nextLabel(l)
			ls, l = append(ls, n+"="+v), rest
		}
		count[fmt.Sprint(s.Name, ls, bits(s.Value))]++
	}
	for name, f := range fams {
		for _, m := range f.Metric {
			var ls []string
			for _, l := range m.Label {
				ls = append(ls, l.GetName()+"="+l.GetValue())
			}
			add := func(name string, v float64) { count[fmt.Sprint(name, ls, bits(v))]-- }
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				add(name, m.Counter.GetValue())
			case dto.MetricType_GAUGE:
				add(name, m.Gauge.GetValue())
			case dto.MetricType_UNTYPED:
				add(name, m.Untyped.GetValue())
			case dto.MetricType_HISTOGRAM:
				add(name+"_count", float64(m.Histogram.GetSampleCount()))
				add(name+"_sum", m.Histogram.GetSampleSum())
			}
		}
	}
	for k, n := range count {
		if n != 0 {
			return fmt.Errorf("%s: %+d of them", k, n)
		}
	}
	return nil
}

func BenchmarkParseExpfmt(b *testing.B) {
	text := snapshot(b, "metrics.txt").Raw
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		p := expfmt.NewTextParser(model.LegacyValidation)
		if _, err := p.TextToMetricFamilies(strings.NewReader(text)); err != nil {
			b.Fatal(err)
		}
	}
}
