package sweep

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/capacity"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// predictedLimit returns the limit that saturates first by the runs of an arm: of their predictions, the one with the median load; nil if none
// predicts one.
func (r *Result) predictedLimit(a *Arm) *report.Limit {
	var limits []*report.Limit
	for i := range r.Measurements {
		if m := &r.Measurements[i]; m.PredictedLimit != nil && maps.Equal(m.Settings, a.Settings) {
			limits = append(limits, m.PredictedLimit)
		}
	}
	if len(limits) == 0 {
		return nil
	}
	slices.SortFunc(limits, func(x, y *report.Limit) int { return cmp.Compare(x.SaturatesPerS, y.SaturatesPerS) })
	return limits[len(limits)/2]
}

// writeSaturation compares, by arm, the measured capacity with the prediction from the traces of its runs.
func (r *Result) writeSaturation(b *strings.Builder) {
	rows := [][]string{{"", "measured", "predicted", "", "", "first limit"}}
	for i := range r.Arms {
		a := &r.Arms[i]
		measured, l := r.Saturation[a.settings.withoutLoad().String()], r.predictedLimit(a)
		if measured <= 0 || l == nil {
			continue
		}
		rows = append(rows, []string{termtext.Escape(a.settings.String()), words.Figure(measured) + "/s", words.Figure(l.SaturatesPerS) + "/s", words.Change(l.SaturatesPerS/measured - 1),
			"(" + words.Figure(l.SaturatesLow) + " to " + words.Figure(l.SaturatesHigh) + ")", termtext.Escape(capacity.LimitName(l))})
	}
	if len(rows) > 1 {
		b.WriteString("\nThe most that the service answered, and the load at which it saturates, as the traces of the runs predict:\n")
		b.WriteString(termtext.Table("", rows, 1))
	}
}
