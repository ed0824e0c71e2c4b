package explain_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestGoals: requests wait for 5 ms. They meet a goal, meet it with the change of a finding, or with all causes gone together.
func TestGoals(t *testing.T) {
	for _, c := range []struct {
		limit   time.Duration
		changes int // 0: it is met already
	}{
		{10 * time.Millisecond, 0},
		{3 * time.Millisecond, 1},
		{1, 3},
	} {
		s := newServer()
		s.serve(3000*ms, "sleep", "time.Sleep", "main.get@/src/main.go:20")
		data := must.Have(s.builder.Bytes())(t)
		rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Goals: []explain.Goal{{Percentile: "p50", Limit: c.limit}}}))(t)
		must.True(t, len(rep.Goals) == 1, "%+v", rep.Goals)
		goal := &rep.Goals[0]
		check.True(t, goal.Kept == (c.changes == 0) && goal.Reached == (c.changes > 0) && goal.Changes == c.changes, "%v: %+v", c.limit, goal)
		if c.changes > 0 {
			must.True(t, goal.Predicted != nil, "%v: no prediction", c.limit)
			check.True(t, goal.Predicted.P50NS.Est <= int64(c.limit), "%v: %+v", c.limit, goal.Predicted)
		}
	}
}
