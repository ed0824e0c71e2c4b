package names

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestCountAll: what clients wait for is counted first, and other units have their own nouns.
func TestCountAll(t *testing.T) {
	loop, run, http, grpc := report.Group{Kind: report.KindLoop, Count: 249}, report.Group{Kind: report.KindRun, Count: 1}, report.Group{Kind: report.KindHTTP1, Count: 500}, report.Group{Kind: report.KindGRPC, Count: 17}
	for want, groups := range map[string][]report.Group{
		"517 requests, 249 iterations, 1 run": {loop, http, run, grpc},
		"249 iterations":                      {loop},
		"0 requests":                          {{Kind: report.KindLoop}},
	} {
		check.Equal(t, CountAll(groups), want, "%+v", groups)
	}
}
