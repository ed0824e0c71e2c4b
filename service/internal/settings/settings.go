// Package settings reads the environment variables of service/auto and
// service.Start.
package settings

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/whylate/whylate/service/tune"
)

// Undo returns how to undo a decision by environment variables: the tuner's or the
// runtime's.
func Undo(e tune.Event) string {
	if rest, ok := strings.CutPrefix(e.Undo, string(e.Knob)+" in the environment"); ok {
		return "WHYLATE_" + string(e.Knob) + "=off, or " + string(e.Knob) + " in the environment" + rest
	}
	return e.Undo
}

// Options reads the tuner's options from the environment. quiet says that nothing is to be logged. Of an invalid value, problems has a text, and the
// setting keeps its default.
func Options(getenv func(string) string) (o tune.Options, quiet bool, problems []string) {
	o = tune.Options{Procs: tune.ModeApply, Policy: tune.PolicyCeil, Memory: tune.ModeObserve, GC: tune.ModeObserve}
	problem := func(name, value, use string) {
		problems = append(problems, fmt.Sprintf("%s=%s: use %s", name, strconv.Quote(value), use))
	}
	if v := getenv("WHYLATE_GOMAXPROCS"); v != "" {
		if p, err := tune.ParsePolicy(v); err == nil {
			o.Policy = p
		} else if m, err := tune.ParseMode(v); err == nil {
			o.Procs = m
		} else {
			problem("WHYLATE_GOMAXPROCS", v, "ceil, floor, round, latency, observe or off")
		}
	}
	if v := getenv("WHYLATE_GOMEMLIMIT"); v != "" {
		if m, err := tune.ParseMode(v); err == nil {
			o.Memory = m
		} else if r, err := strconv.ParseFloat(v, 64); err == nil && r > 0 && r <= 1 {
			o.Memory, o.MemoryRatio = tune.ModeApply, r
		} else {
			problem("WHYLATE_GOMEMLIMIT", v, "observe, apply, off, or a share of the limit above 0 and up to 1")
		}
	}
	if v := getenv("WHYLATE_GOGC"); v != "" {
		if m, err := tune.ParseMode(v); err == nil {
			o.GC = m
		} else {
			problem("WHYLATE_GOGC", v, "observe, apply or off")
		}
	}
	switch v := getenv("WHYLATE_LOG"); v {
	case "", "on":
	case "off":
		quiet = true
	default:
		problem("WHYLATE_LOG", v, "on or off")
	}
	return o, quiet, problems
}
