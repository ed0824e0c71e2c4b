package record

import (
	"io"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A clockCheck compares the clock of a trace that is written to it with CLOCK_MONOTONIC, of which traces have a snapshot since
// Go 1.25.
type clockCheck struct {
	pipe      *io.PipeWriter
	done      chan struct{}
	offset    int64 // the trace's clock less CLOCK_MONOTONIC, ns
	isChecked bool
}

// newClockCheck starts a goroutine that reads the first generation of the trace written to the check.
func newClockCheck() *clockCheck {
	r, w := io.Pipe()
	c := &clockCheck{pipe: w, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.read(r)
		r.Close()
	}()
	return c
}

// Write never fails. It drops all bytes after the first generation.
func (c *clockCheck) Write(p []byte) (int, error) {
	_, _ = c.pipe.Write(p)
	return len(p), nil
}

// Close ends the check, as the end of the trace does.
func (c *clockCheck) Close() error { return c.pipe.Close() }

// read sets offset, the trace's clock minus CLOCK_MONOTONIC in ns, from the clock snapshot in the trace's first generation. Without one, isChecked
// remains false.
func (c *clockCheck) read(trace io.Reader) {
	r, err := tracefmt.NewReader(trace, tracefmt.Options{})
	if err != nil {
		return
	}
	g, err := r.Next()
	if err != nil || !g.HasSnapshot || g.Freq == 0 {
		return
	}
	c.offset = int64(float64(g.Snapshot.Time)*1e9/float64(g.Freq)) - int64(g.Snapshot.Mono)
	c.isChecked = true
}

// maxClockErrorNS is how much the snapshot of the same clock may differ.
const maxClockErrorNS = 1e6

// describe ends the check, and adds its result to the description of the kernel's events, if k is not nil. Offsets up to maxClockErrorNS count as 0.
func (c *clockCheck) describe(k *bundle.Kernel) {
	_ = c.Close()
	<-c.done
	if k == nil || !c.isChecked {
		return
	}
	if k.IsClockChecked = true; c.offset > maxClockErrorNS || c.offset < -maxClockErrorNS {
		k.ClockOffsetNS = c.offset
	}
}
