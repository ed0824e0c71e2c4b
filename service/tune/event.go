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

// An Action is what was decided about a knob.
type Action string

const (
	// ActionSet: the value was changed.
	ActionSet Action = "set"
	// ActionWouldSet: it would have been changed, but the knob is only observed.
	ActionWouldSet Action = "would set"
	// ActionKeep: the value is left as it is.
	ActionKeep Action = "keep"
	// ActionRestore: the value, or the runtime's own control, was given back.
	ActionRestore Action = "restore"
	// ActionAlarm: the memory limit is so small that the collector takes the
	// service's CPU.
	ActionAlarm Action = "alarm"
)

// An Event is one decision.
type Event struct {
	Time   time.Time `json:"time"`
	Knob   Knob      `json:"knob"`
	Action Action    `json:"action"`
	// From and To are the value before and the one decided on: a number of Ps,
	// bytes, or percent. For GOMEMLIMIT math.MaxInt64 is none, for GOGC -1 is
	// off.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Source says where the limit came from: a file with its level, an
	// environment variable.
	Source string `json:"source"`
	// Reason says why.
	Reason string `json:"reason"`
	// Undo says what would reverse or prevent the decision.
	Undo string `json:"undo"`
}

// Value is To in the knob's own notation.
func (e Event) Value() string { return valueText(e.Knob, e.To) }

func valueText(k Knob, v int64) string {
	switch {
	case k == KnobGOMEMLIMIT:
		return bytesText(v)
	case k == KnobGOGC && v < 0:
		return "off"
	}
	return strconv.FormatInt(v, 10)
}

// String is the event as one line.
func (e Event) String() string {
	s := string(e.Action) + " " + string(e.Knob) + "=" + e.Value()
	if e.From != e.To {
		s += " (was " + valueText(e.Knob, e.From) + ")"
	}
	return s + ": " + e.Reason
}

// Log writes the event as one record: a warning for an alarm, else information.
func (e Event) Log(l *slog.Logger) {
	level := slog.LevelInfo
	if e.Action == ActionAlarm {
		level = slog.LevelWarn
	}
	l.LogAttrs(context.Background(), level, "whylate: "+string(e.Action)+" "+string(e.Knob),
		slog.String("value", e.Value()), slog.String("from", valueText(e.Knob, e.From)),
		slog.String("source", e.Source), slog.String("reason", e.Reason), slog.String("undo", e.Undo))
}
