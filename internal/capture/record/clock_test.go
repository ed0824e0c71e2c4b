package record

import (
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestClockCheck: the clock of a trace is checked if the trace has a snapshot of others, also when it is cut after that.
func TestClockCheck(t *testing.T) {
	for minor, isChecked := range map[int]bool{26: true, 22: false} {
		b := tracetext.New(minor)
		b.Thread(1).Block(1000, "sleep", "time.Sleep", "main.main")
		data := must.Have(b.Bytes())(t)
		c := newClockCheck()
		must.Have(c.Write(data))(t)
		var k bundle.Kernel
		c.describe(&k)
		c.describe(nil)
		// The clock of the builder's traces is another one.
		check.True(t, k.IsClockChecked == isChecked && (k.ClockOffsetNS != 0) == isChecked, "Go 1.%d: %+v", minor, k)
	}
}
