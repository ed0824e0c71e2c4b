package acceptance_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestMessagesFromArrival: for messages that queue for the goroutine that handles them, the report has the latency that their sender
// measured, and predicts it with more goroutines. What the finding advises is what --what-if accepts.
func TestMessagesFromArrival(t *testing.T) {
	dir := filepath.Join(testprog.RecordingsDir(t), "field")
	var measured struct {
		Client struct {
			P50 int64 `json:"p50_ns"`
			P99 int64 `json:"p99_ns"`
		}
	}
	must.Do(t, json.Unmarshal(must.Have(os.ReadFile(filepath.Join(dir, "nats-serial.json")))(t), &measured))
	rep := explainFile(t, testprog.Recording(t, "field/nats-serial.whylate"), "--what-if", "slots@main.handle=4")
	must.True(t, len(rep.Groups) > 0 && rep.Groups[0].Backlog != nil, "no messages queue in %+v", rep.Groups)
	total := &rep.Groups[0].Backlog.TotalNS
	for name, c := range map[string][2]int64{"p50": {*total.P50, measured.Client.P50}, "p99": {*total.P99, measured.Client.P99}} {
		check.True(t, math.Abs(float64(c[0]-c[1])) <= 0.1*float64(c[1]), "%s from arrival to done: %d ns, the sender measured %d", name, c[0], c[1])
	}
	f := &rep.Findings[0]
	must.True(t, f.Code == report.RulePoolTooSmall && len(f.Changes) == 1 && f.Predicted != nil && len(rep.WhatIf) == 1, "%+v, %+v", f, rep.WhatIf)
	check.Equal(t, f.Changes[0].Kind, report.ChangeSlots, "change")
	check.True(t, f.Predicted.FromArrival && *f.Predicted.WasP99NS == *total.P99 && 3*f.Predicted.P99NS.Est < *total.P99, "predicted %+v", f.Predicted)
	check.Equal(t, rep.WhatIf[0].Predicted.P99NS, f.Predicted.P99NS, "what-if of the finding's change")
}
