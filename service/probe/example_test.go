package probe_test

import (
	"log/slog"

	"github.com/whylate/whylate/service/probe"
)

// Freezes are logged as they end, and the last seconds' sum is read at any time.
func ExampleStart() {
	p := probe.Start(probe.Options{OnFreeze: func(f probe.Freeze) {
		slog.Warn("frozen", "for", f.Likely, "quota", f.Verdict)
	}})
	defer p.Stop()

	var s probe.Snapshot
	p.Snapshot(&s)
	slog.Info("lost", "freezes", s.Freezes.Count, "in", s.FreezeTime)
}
