// Package features counts what a trace holds, by the reference reader, so that
// tests can show that a scenario records what it is for.
package features

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/exp/trace"
)

// Count reads a trace with the reference reader and counts what is in it:
// "block REASON", "stop REASON", "range NAME", "false network wake", and so on.
func Count(data []byte) (map[string]int, error) {
	r, err := trace.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("opening the trace: %w", err)
	}
	f := map[string]int{}
	reason := map[trace.GoID]string{}
	seen := map[trace.GoID]bool{}
	for {
		ev, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, fmt.Errorf("after %d events: %w", f["events"], err)
		}
		f["events"]++
		switch ev.Kind() {
		case trace.EventSync:
			f["generations"]++
		case trace.EventRangeBegin:
			f["range "+ev.Range().Name]++
		case trace.EventStackSample:
			f["samples"]++
		case trace.EventTaskBegin:
			f["task begins"]++
			f["task "+ev.Task().Type]++
		case trace.EventTaskEnd:
			f["task ends"]++
			if len(frames(ev.Stack())) == 0 {
				f["task ends without stack"]++
			}
		case trace.EventRegionBegin:
			f["region begins"]++
			if ev.Region().Task == trace.BackgroundTask {
				f["regions without task"]++
			}
		case trace.EventRegionEnd:
			f["region ends"]++
		case trace.EventLog:
			f["logs"]++
		case trace.EventMetric:
			f["metric "+ev.Metric().Name]++
		case trace.EventExperimental:
			f["experimental"]++
		case trace.EventStateTransition:
			transition(f, reason, seen, ev)
		}
	}
}

func transition(f map[string]int, reason map[trace.GoID]string, seen map[trace.GoID]bool, ev trace.Event) {
	st := ev.StateTransition()
	if st.Resource.Kind != trace.ResourceGoroutine {
		return
	}
	g := st.Resource.Goroutine()
	from, to := st.Goroutine()
	switch {
	case from == trace.GoNotExist && to != trace.GoNotExist:
		f["creations"]++
		if seen[g] {
			f["ids that come back"]++
		}
		seen[g] = true
		if to == trace.GoSyscall {
			f["born in a system call"]++
		}
		for _, fn := range frames(ev.Stack()) {
			f["created under "+fn]++
		}
	case from == trace.GoUndetermined:
		f["alive before"]++
		if to == trace.GoWaiting && len(frames(st.Stack)) > 0 {
			f["alive before with stack"]++
		}
	case to == trace.GoNotExist:
		f["ends"]++
	case to == trace.GoWaiting:
		f["block "+st.Reason]++
		reason[g] = st.Reason
		for _, fn := range frames(st.Stack) {
			f["blocked in "+fn]++
		}
	case from == trace.GoWaiting && to == trace.GoRunnable:
		waker := ev.Goroutine()
		stack := frames(ev.Stack())
		switch {
		case waker == trace.NoGoroutine:
			f["wake by nobody from "+reason[g]]++
		case reason[g] == "network" && len(stack) > 0 && !strings.HasPrefix(stack[0], "internal/poll."):
			f["false network wake"]++
		case reason[g] == "network":
			f["true network wake by a goroutine"]++
		}
	case from == trace.GoRunning && to == trace.GoRunnable:
		f["stop "+st.Reason]++
		for _, fn := range frames(st.Stack) {
			f["stopped in "+fn]++
		}
	case from == trace.GoRunning && to == trace.GoSyscall:
		f["syscalls"]++
		for _, fn := range frames(st.Stack) {
			f["syscall in "+fn]++
		}
	case from == trace.GoSyscall && to == trace.GoRunnable:
		f["syscalls blocked"]++
	}
}

// frames returns the functions of a stack, leaf first.
func frames(s trace.Stack) []string {
	var out []string
	for fr := range s.Frames() {
		fn := fr.Func
		if rest, ok := strings.CutPrefix(fn, "github.com/whylate/whylate/lab/traceprog"); ok {
			// A test binary knows its package under test by path.
			rest = strings.TrimPrefix(rest, "/cgo")
			if strings.HasPrefix(rest, ".") {
				fn = "main" + rest
			}
		}
		out = append(out, fn)
	}
	return out
}
