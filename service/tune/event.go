package tune

import (
	"context"
	"log/slog"
	"strconv"
	"time"
)

// A Knob is one of the runtime's settings.
type Knob string

const (
	KnobGOMAXPROCS Knob = "GOMAXPROCS"
	KnobGOMEMLIMIT Knob = "GOMEMLIMIT"
	KnobGOGC       Knob = "GOGC"
)

// An Action is the kind of a decision about a knob.
type Action string

const (
	// ActionSet means that the tuner changed the value.
	ActionSet Action = "set"
	// ActionWouldSet means that the knob is only observed; ModeApply would change it.
	ActionWouldSet Action = "would set"
	// ActionKeep means that the tuner leaves the value unchanged.
	ActionKeep Action = "keep"
	// ActionRestore means that the tuner restored the initial value or the runtime's
	// control.
	ActionRestore Action = "restore"
	// ActionAlarm means that the memory limit is so small that the collector takes
	// the service's CPU.
	ActionAlarm Action = "alarm"
)

// An Event is one decision.
type Event struct {
	Time   time.Time `json:"time"`
	Knob   Knob      `json:"knob"`
	Action Action    `json:"action"`
	// From is the value before the decision and To the value after it: a number of
	// Ps, bytes, or percent. math.MaxInt64 is no GOMEMLIMIT; -1 is GOGC=off.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Source is the origin of the limit: a file with its level, or an environment
	// variable.
	Source string `json:"source"`
	// Reason explains the decision.
	Reason string `json:"reason"`
	// Undo describes how to reverse or prevent the decision.
	Undo string `json:"undo"`
}

// Value returns To in the knob's notation.
func (e Event) Value() string { return valueText(e.Knob, e.To) }

// valueText formats a knob's value: bytes for GOMEMLIMIT, "off" for a negative GOGC.
func valueText(k Knob, v int64) string {
	switch {
	case k == KnobGOMEMLIMIT:
		return bytesText(v)
	case k == KnobGOGC && v < 0:
		return "off"
	}
	return strconv.FormatInt(v, 10)
}

// String returns the event as one line.
func (e Event) String() string {
	s := string(e.Action) + " " + string(e.Knob) + "=" + e.Value()
	if e.From != e.To {
		s += " (was " + valueText(e.Knob, e.From) + ")"
	}
	return s + ": " + e.Reason
}

// Log writes the event as one record, at level Warn for an alarm and Info otherwise.
func (e Event) Log(l *slog.Logger) {
	level := slog.LevelInfo
	if e.Action == ActionAlarm {
		level = slog.LevelWarn
	}
	l.LogAttrs(context.Background(), level, "whylate: "+string(e.Action)+" "+string(e.Knob),
		slog.String("value", e.Value()), slog.String("from", valueText(e.Knob, e.From)),
		slog.String("source", e.Source), slog.String("reason", e.Reason), slog.String("undo", e.Undo))
}
