package flight

import (
	"bytes"
	"runtime/trace"
	"strings"
	"testing"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/internal/schedstat"
)

// TestHostLogger tests that the threads' counters are written without a readable cgroup, the cgroup's
// counters without /proc, and that no logger exists without both.
func TestHostLogger(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	cpu, err := cgroup.NewSampler(cgroup.Options{})
	if err != nil {
		t.Skip(err)
	}
	check.True(t, newHostLoggerFrom(&hostFacts{}, nil, nil) == nil, "there is a logger of nothing")
	for counters, h := range map[string]*hostLogger{"threads": newHostLoggerFrom(&hostFacts{}, nil, schedstat.New(openThreads)), "cgroup": newHostLoggerFrom(&hostFacts{}, cpu, nil)} {
		if h == nil {
			if counters == "threads" && schedstat.New(openThreads) == nil {
				continue // no /proc here
			}
			t.Errorf("%s alone are not logged", counters)
			continue
		}
		for _, samples := range []int{0, 1, samplesPerStart} { // the facts of the machine come first, and again after some samples
			var b bytes.Buffer
			h.samples = samples
			must.Do(t, trace.Start(&b))
			h.logSample()
			trace.Stop()
			check.False(t, samples == 0 && h.idle, "%s alone: idle by one sample", counters)
			text := b.String()
			if hasThreads := strings.Contains(text, `"run_ns"`); !strings.Contains(text, hostSample) || hasThreads != (counters == "threads") {
				t.Errorf("%s alone: the trace has a sample of threads is %v", counters, hasThreads)
			}
			check.Equal(t, strings.Contains(text, hostStart), samples != 1, "%s alone: facts at sample %d", counters, samples)
		}
		h.close()
	}
}
