// Package features counts the features of a trace with the reference reader, so that tests can check that a recording has what
// its scenario is for.
package features

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/exp/trace"
)

// Count counts the features of a trace: "block REASON", "stop REASON", "range NAME", "false network wake", and so on.
func Count(data []byte) (map[string]int, error) {
	r, err := trace.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("opening the trace: %w", err)
	}
	counts := map[string]int{}
	reason := map[trace.GoID]string{}
	created := map[trace.GoID]bool{}
	for {
		ev, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			return counts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("after %d events: %w", counts["events"], err)
		}
		counts["events"]++
		switch ev.Kind() {
		case trace.EventSync:
			counts["generations"]++
		case trace.EventRangeBegin:
			counts["range "+ev.Range().Name]++
		case trace.EventStackSample:
			counts["samples"]++
		case trace.EventTaskBegin:
			counts["task begins"]++
			counts["task "+ev.Task().Type]++
		case trace.EventTaskEnd:
			counts["task ends"]++
			if len(functionNames(ev.Stack())) == 0 {
				counts["task ends without stack"]++
			}
		case trace.EventRegionBegin:
			counts["region begins"]++
			if ev.Region().Task == trace.BackgroundTask {
				counts["regions without task"]++
			}
		case trace.EventRegionEnd:
			counts["region ends"]++
		case trace.EventLog:
			counts["logs"]++
		case trace.EventMetric:
			counts["metric "+ev.Metric().Name]++
		case trace.EventExperimental:
			counts["experimental"]++
		case trace.EventStateTransition:
			countTransition(counts, reason, created, ev)
		}
	}
}

func countTransition(counts map[string]int, reason map[trace.GoID]string, created map[trace.GoID]bool, ev trace.Event) {
	st := ev.StateTransition()
	if st.Resource.Kind != trace.ResourceGoroutine {
		return
	}
	g := st.Resource.Goroutine()
	from, to := st.Goroutine()
	switch {
	case from == trace.GoNotExist && to != trace.GoNotExist:
		counts["creations"]++
		if created[g] {
			counts["ids that come back"]++
		}
		created[g] = true
		if to == trace.GoSyscall {
			counts["born in a system call"]++
		}
		for _, fn := range functionNames(ev.Stack()) {
			counts["created under "+fn]++
		}
	case from == trace.GoUndetermined:
		counts["alive before"]++
		if to == trace.GoWaiting && len(functionNames(st.Stack)) > 0 {
			counts["alive before with stack"]++
		}
	case to == trace.GoNotExist:
		counts["ends"]++
	case to == trace.GoWaiting:
		counts["block "+st.Reason]++
		reason[g] = st.Reason
		for _, fn := range functionNames(st.Stack) {
			counts["blocked in "+fn]++
		}
	case from == trace.GoWaiting && to == trace.GoRunnable:
		waker := ev.Goroutine()
		stack := functionNames(ev.Stack())
		switch {
		case waker == trace.NoGoroutine:
			counts["wake by nobody from "+reason[g]]++
		case reason[g] == "network" && len(stack) > 0 && !strings.HasPrefix(stack[0], "internal/poll."):
			counts["false network wake"]++
		case reason[g] == "network":
			counts["true network wake by a goroutine"]++
		}
	case from == trace.GoRunning && to == trace.GoRunnable:
		counts["stop "+st.Reason]++
		for _, fn := range functionNames(st.Stack) {
			counts["stopped in "+fn]++
		}
	case from == trace.GoRunning && to == trace.GoSyscall:
		counts["syscalls"]++
		for _, fn := range functionNames(st.Stack) {
			counts["syscall in "+fn]++
		}
	case from == trace.GoSyscall && to == trace.GoRunnable:
		counts["syscalls blocked"]++
	}
}

// functionNames returns the functions of a stack, leaf first.
func functionNames(s trace.Stack) []string {
	var out []string
	for fr := range s.Frames() {
		fn := fr.Func
		if rest, ok := strings.CutPrefix(fn, "github.com/whylate/whylate/lab/traceprog"); ok {
			// In a test binary, the path of the package under test replaces "main".
			rest = strings.TrimPrefix(rest, "/cgo")
			if strings.HasPrefix(rest, ".") {
				fn = "main" + rest
			}
		}
		out = append(out, fn)
	}
	return out
}
