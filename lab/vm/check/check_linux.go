package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"time"
)

// A Check is one named verification.
type Check struct {
	// Name is "area/what"; areas are package names.
	Name string
	// Needs are controllers without which the check is skipped.
	Needs []string
	// MinCPUs skips the check on smaller machines.
	MinCPUs int
	// Run does the work; it may be called in any layout.
	Run func(e *Env, t *T)
}

// All lists every check, in the order in which they run.
func All() []Check {
	var all []Check
	all = append(all, cgroupChecks()...)
	all = append(all, serviceChecks()...)
	all = append(all, clockChecks()...) // last: the clock is set
	return all
}

// A ChildFunc is the body of a process that a check starts inside a group. Its result is sent to the check as JSON; c.Say
// sends a message before, and c.Hear waits for a line from the check.
type ChildFunc func(c *ChildIO, args []string) (any, error)

// Children lists the bodies by name.
func Children() map[string]ChildFunc {
	all := cgroupChildren()
	maps.Copy(all, serviceChildren())
	return all
}

// A Result is what one check said; the guest writes one as a line of JSON.
type Result struct {
	Check  string        `json:"check"`
	Layout string        `json:"layout"`
	Kernel string        `json:"kernel"`
	Took   time.Duration `json:"took_ns"`
	Failed bool          `json:"failed"`
	Skip   string        `json:"skip,omitempty"`
	Log    []string      `json:"log,omitempty"`
	// Data is what a program other than the guest has to say.
	Data json.RawMessage `json:"data,omitempty"`
	// Done marks the last line: everything ran.
	Done bool `json:"done,omitempty"`
}

// T is the testing.T of a check: it records, and stops the check on Fatalf
// and Skipf.
type T struct {
	res      Result
	cleanups []func()
}

// Logf adds a line to the result.
func (t *T) Logf(format string, args ...any) {
	t.res.Log = append(t.res.Log, fmt.Sprintf(format, args...))
}

// Errorf adds a line and marks the check failed.
func (t *T) Errorf(format string, args ...any) {
	t.res.Failed = true
	t.Logf("FAILED: "+format, args...)
}

// Fatalf is Errorf, and ends the check.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf ends the check with a reason.
func (t *T) Skipf(format string, args ...any) {
	t.res.Skip = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Cleanup calls f when the check is over, in reverse order.
func (t *T) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// RunOne runs a check to its end, whatever it does, and returns its result.
func RunOne(e *Env, c Check) Result {
	t := &T{res: Result{Check: c.Name, Layout: e.Layout, Kernel: e.Kernel}}
	began := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("panic: %v\n%s", r, debug.Stack())
			}
			for len(t.cleanups) > 0 {
				f := t.cleanups[len(t.cleanups)-1]
				t.cleanups = t.cleanups[:len(t.cleanups)-1]
				f()
			}
		}()
		for _, n := range c.Needs {
			if !e.HasController(n) {
				t.Skipf("this kernel offers no %s controller in the %s layout", n, e.Layout)
			}
		}
		if n := runtime.NumCPU(); n < c.MinCPUs {
			t.Skipf("needs %d CPUs, there are %d", c.MinCPUs, n)
		}
		c.Run(e, t)
	}()
	<-done
	t.res.Took = time.Since(began)
	return t.res
}
