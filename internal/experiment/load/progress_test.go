package load

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestProgress: Progress is called ten times a second up to the total, and not after the end.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done []time.Duration
		g := &generator{schedule: &Schedule{duration: int64(2 * time.Second)}, options: &Options{Warmup: time.Second, Progress: func(d, total time.Duration, _ int64) {
			if done = append(done, d); total != 3*time.Second {
				t.Errorf("the whole is %v", total)
			}
		}}}
		stop := g.reportProgress()
		time.Sleep(4*time.Second + time.Millisecond)
		stop()
		time.Sleep(time.Second)
		check.True(t, len(done) == 40 && done[0] == 100*time.Millisecond && done[29] == 3*time.Second && done[39] == 3*time.Second,
			"reported progress: %v", done)
		(&generator{options: &Options{}}).reportProgress()()
	})
}
