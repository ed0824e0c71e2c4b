package pool

import (
	"errors"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

func TestPerCPU(t *testing.T) {
	for _, c := range []struct {
		per, cpus float64
		want      int64
	}{
		{1, 4, 4}, {1, 1.5, 2}, {1, 0.25, 1}, {2, 1.5, 3}, {8, 0.5, 4},
		{1, 0, 1}, {0, 4, 1}, {-1, 4, 1}, {math.NaN(), 4, 1}, {math.Inf(1), 4, math.MaxInt32},
	} {
		check.Equal(t, PerCPU(c.per)(Limit{CPUs: c.cpus}), c.want, "PerCPU(%v) of %v CPUs", c.per, c.cpus)
	}
}

func TestFollowsTheLimit(t *testing.T) {
	// Each look takes one step; the channel makes the test the clock.
	limits := make(chan Limit, 1)
	limits <- Limit{CPUs: 2}
	failing := errors.New("unreadable for a moment")
	type resize struct{ from, to int64 }
	resized := make(chan resize, 1)
	l, err := Follow(Options{
		Interval: time.Millisecond,
		Read: func() (Limit, error) {
			select {
			case lim := <-limits:
				if lim.CPUs < 0 {
					return Limit{}, failing
				}
				return lim, nil
			default:
				return Limit{}, failing
			}
		},
		OnResize: func(from, to int64, _ Limit) { resized <- resize{from, to} },
	})
	must.Do(t, err)
	if got := l.Size(); got != 2 {
		t.Fatalf("size %d at 2 CPUs", got)
	}
	for _, step := range []struct {
		cpus float64
		want resize
	}{{0.5, resize{2, 1}}, {-1, resize{}}, {6.1, resize{1, 7}}} {
		limits <- Limit{CPUs: step.cpus}
		if step.cpus < 0 {
			continue
		}
		check.Equal(t, <-resized, step.want, "at %v CPUs", step.cpus)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	check.True(t, l.TryAcquire(7) && !l.TryAcquire(1), "a closed limiter does not work on with its last size")
}

func TestFollowReportsTheFirstError(t *testing.T) {
	want := errors.New("no limit")
	if _, err := Follow(Options{Read: func() (Limit, error) { return Limit{}, want }}); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestFollowThisProcess(t *testing.T) {
	l := must.Have(Follow(Options{}))(t)
	defer l.Close()
	if got := l.Size(); got < 1 || got > int64(runtime.GOMAXPROCS(0)) {
		t.Errorf("size %d with GOMAXPROCS %d", got, runtime.GOMAXPROCS(0))
	}
}
