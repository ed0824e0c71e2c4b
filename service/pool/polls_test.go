package pool

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestPolls tests that the size follows a changed limit at a poll, and that an error, the same limit, and a limit with the same
// size change nothing and report nothing.
func TestPolls(t *testing.T) {
	limit, fails := Limit{CPUs: 2}, error(nil)
	sized, released := 0, 0
	type resize struct{ from, to int64 }
	var reported []resize
	f := &follower{last: limit, closeReader: func() { released++ }, opts: Options{
		Read: func() (Limit, error) { return limit, fails },
		Size: func(l Limit) int64 { sized++; return int64(l.CPUs) },
		OnResize: func(from, to int64, reason Limit) {
			check.True(t, reason == limit, "because of %+v, it is %+v", reason, limit)
			reported = append(reported, resize{from, to})
		},
	}}
	l := New(2)
	for i, c := range []struct {
		limit           Limit
		err             error
		size            int64
		sized, reported int
	}{
		{Limit{CPUs: 2}, nil, 2, 0, 0},
		{Limit{CPUs: 5}, errors.New("x"), 2, 0, 0},
		{Limit{CPUs: 5}, nil, 5, 1, 1},
		{Limit{CPUs: 5, Memory: 1}, nil, 5, 2, 1},
		{Limit{CPUs: 0}, nil, 1, 3, 2},
		{Limit{CPUs: -3}, nil, 1, 4, 2},
	} {
		limit, fails = c.limit, c.err
		if f.poll(l); l.Size() != c.size || sized != c.sized || len(reported) != c.reported {
			t.Errorf("look %d: size %d, asked %d times, told %v", i, l.Size(), sized, reported)
		}
	}
	check.True(t, reported[0] == (resize{2, 5}) && reported[1] == (resize{5, 1}), "told %v", reported)
	f.opts.OnResize = nil
	limit = Limit{CPUs: 3}
	f.poll(l)
	check.Equal(t, l.Size(), 3, "without a listener")
	f.close()
	check.True(t, released == 1, "released %d times", released)
	(&follower{}).close()
}

// TestFollowCloses tests that Close stops following, may be called again, and keeps the size.
func TestFollowCloses(t *testing.T) {
	reads := make(chan bool, 100)
	l := must.Have(Follow(Options{Interval: time.Millisecond, Size: PerCPU(2), Read: func() (Limit, error) {
		select {
		case reads <- true:
		default:
		}
		return Limit{CPUs: 1.2}, nil
	}}))(t)
	<-reads
	<-reads // at the first tick
	for range 2 {
		must.Do(t, l.Close())
	}
	check.Equal(t, l.Size(), 3, "size")
	must.Do(t, New(1).Close())
}

// TestProcessLimit tests that a new reading replaces the previous limits unless a file is missing.
func TestProcessLimit(t *testing.T) {
	lastComplete := cgroup.Tightest{Quota: 1e-3, Memory: 12345}
	blind := &processLimit{lastComplete: lastComplete}
	l := must.Have(blind.read())(t)
	check.True(t, l.Quota == lastComplete.Quota && l.Memory == lastComplete.Memory && l.CPUs == lastComplete.Quota && l.GOMAXPROCS >= 1,
		"%+v", l)
	sees := &processLimit{lastComplete: lastComplete}
	sees.open()
	defer sees.close()
	l = must.Have(sees.read())(t)
	if sees.sampler == nil {
		t.Skip("nothing is measurable here")
	}
	var b cgroup.Tightest
	must.Do(t, sees.sampler.SampleLimits(&b))
	if b.Unread == 0 && (l.Quota != b.Quota || l.Memory != b.Memory) || l.CPUs != float64(l.GOMAXPROCS) && l.CPUs != l.Quota {
		t.Errorf("%+v, the limits are %+v", l, b)
	}
	sees.close()
	check.True(t, sees.sampler == nil, "the sampler is kept")
	sees.close()
	for _, n := range []float64{0, -1, math.NaN(), 1e300} {
		if got := PerCPU(n)(Limit{CPUs: 2}); got != 1 && got != math.MaxInt32 || (n > 1) != (got > 1) {
			t.Errorf("%v units for each CPU: %d", n, got)
		}
	}
}
