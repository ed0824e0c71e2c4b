package settings

import (
	"testing"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/tune"
)

func env(m map[string]string) func(string) string {
	return func(k string) string { return m[k] }
}

func TestOptions(t *testing.T) {
	std := tune.Options{Procs: tune.ModeApply, Policy: tune.PolicyCeil, Memory: tune.ModeObserve, GC: tune.ModeObserve}
	for _, c := range []struct {
		env      map[string]string
		change   func(*tune.Options)
		quiet    bool
		problems int
	}{
		{nil, func(*tune.Options) {}, false, 0},
		{map[string]string{"WHYLATE_GOMAXPROCS": "floor"}, func(o *tune.Options) { o.Policy = tune.PolicyFloor }, false, 0},
		{map[string]string{"WHYLATE_GOMAXPROCS": "latency"}, func(o *tune.Options) { o.Policy = tune.PolicyLatency }, false, 0},
		{map[string]string{"WHYLATE_GOMAXPROCS": "observe"}, func(o *tune.Options) { o.Procs = tune.ModeObserve }, false, 0},
		{map[string]string{"WHYLATE_GOMAXPROCS": "off"}, func(o *tune.Options) { o.Procs = tune.ModeOff }, false, 0},
		{map[string]string{"WHYLATE_GOMAXPROCS": "4"}, func(*tune.Options) {}, false, 1},
		{map[string]string{"WHYLATE_GOMEMLIMIT": "apply"}, func(o *tune.Options) { o.Memory = tune.ModeApply }, false, 0},
		{map[string]string{"WHYLATE_GOMEMLIMIT": "0.8"}, func(o *tune.Options) { o.Memory, o.MemoryRatio = tune.ModeApply, 0.8 }, false, 0},
		{map[string]string{"WHYLATE_GOMEMLIMIT": "80"}, func(*tune.Options) {}, false, 1},
		{map[string]string{"WHYLATE_GOMEMLIMIT": "NaN"}, func(*tune.Options) {}, false, 1},
		{map[string]string{"WHYLATE_GOGC": "apply"}, func(o *tune.Options) { o.GC = tune.ModeApply }, false, 0},
		{map[string]string{"WHYLATE_LOG": "off"}, func(*tune.Options) {}, true, 0},
		{map[string]string{"WHYLATE_LOG": "loud", "WHYLATE_GOGC": "400"}, func(*tune.Options) {}, false, 2},
	} {
		want := std
		c.change(&want)
		got, quiet, problems := Options(env(c.env))
		if got.Procs != want.Procs || got.Policy != want.Policy || got.Memory != want.Memory || got.MemoryRatio != want.MemoryRatio || got.GC != want.GC {
			t.Errorf("%v: %+v, want %+v", c.env, got, want)
		}
		check.True(t, quiet == c.quiet && len(problems) == c.problems, "%v: quiet %v, problems %q", c.env, quiet, problems)
	}
}

func TestUndo(t *testing.T) {
	for _, c := range []struct{ undo, want string }{
		{"GOGC in the environment sets another value", "WHYLATE_GOGC=off, or GOGC in the environment sets another value"},
		{"remove GOGC from the environment", "remove GOGC from the environment"},
	} {
		check.Equal(t, Undo(tune.Event{Knob: tune.KnobGOGC, Undo: c.undo}), c.want, "%q", c.undo)
	}
}
