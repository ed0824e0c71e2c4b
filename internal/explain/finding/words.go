package finding

import (
	"fmt"
	"path"
	"strings"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// siteText names a site briefly: store.(*DB).get (db.go:12), with its caller.
func siteText(s *report.Site) string {
	if s == nil {
		return "an unknown place"
	}
	text := lineText(s)
	if s.CalledFrom != nil {
		text += ", " + names.Lead(s.CalledFrom) + siteText(s.CalledFrom.Site())
	}
	return text
}

// lineText is siteText without the caller, for texts that name the caller elsewhere.
func lineText(s *report.Site) string {
	if s == nil {
		return "an unknown place"
	}
	does := ""
	if s.Does != "" {
		does = ", " + s.Does
	}
	return fmt.Sprintf("%s (%s:%d%s)", words.FuncName(s.Func), path.Base(s.File), s.Line, does)
}

// goroutineText returns a phrase for the goroutine of a cause: the request's own, or another one with the waits that
// lead to it.
func goroutineText(via []report.Via) string {
	if len(via) == 0 {
		return "on its own goroutine"
	}
	var waits []string
	for i := range via {
		waits = append(waits, string(via[i].Wait)+" at "+lineText(via[i].Site))
	}
	s := "on another goroutine, reached through " + waits[0]
	for _, w := range waits[1:] {
		s += ", then " + w
	}
	return s
}

// Calls that rules distinguish.
const (
	sleepCall  = "time.Sleep"
	selectCall = "runtime.selectgo"
	readLock   = "RWMutex).RLock"
	writeLock  = "RWMutex).Lock"
)

// libraryCall returns the library function of a wait, or "" if every wait of its kind is in that function.
func libraryCall(call string) string {
	switch call {
	case "", selectCall, "runtime.chanrecv1", "runtime.chanrecv2", "runtime.chansend1", "sync.(*Cond).Wait":
		return ""
	}
	return call
}

// activityAt returns a phrase for the activity of a cause.
func activityAt(cause *report.Cause, via []report.Via) string {
	location := siteText(nonStdSite(cause, via))
	call := libraryCall(cause.Call)
	if nonStdSite(cause, via) != cause.Site {
		call = "" // the call belongs to the line of the standard library, which is not named
	}
	if call != "" {
		call = " in " + call
	}
	switch cause.Cause {
	case report.CauseCPU:
		return "computes in " + location
	case report.CauseSleep:
		return timerActivity(cause) + " at " + location
	case report.CauseNetwork:
		switch {
		case isFileCall(cause.Call):
			return "waits for a pipe" + call + " at " + location
		case cause.Kind == "inbound":
			return "waits for the client at " + location
		}
		return "waits for the network" + call + " at " + location
	case report.CauseSyscall:
		return syscallOf(cause).activity + call + " at " + location
	}
	return "waits" + call + " at " + location
}

// activity returns a phrase for the activity at the end of a route.
func (p *causeRoute) activity() string { return activityAt(p.Cause, p.via) }

// timerActivity returns a phrase for the kind of timer of a sleep.
func timerActivity(c *report.Cause) string {
	switch verdict.KindOf(c) {
	case verdict.Deadline:
		if strings.HasPrefix(c.Call, "net/http.") {
			return "waits for a time-out of net/http"
		}
		return "waits for a context's deadline"
	case verdict.Timer:
		return "waits for a timer or ticker"
	case verdict.Limiter:
		return "waits for a rate limiter"
	}
	return "sleeps"
}

// measurement returns evidence with a number.
func measurement[N int | int64 | float64](text string, value N, unit string) report.Evidence {
	return report.Evidence{Text: text, Value: float64(value), Unit: unit}
}
