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

// place names a site briefly: store.(*DB).get (db.go:12).
func place(s *report.Site) string {
	if s == nil {
		return "an unknown place"
	}
	text := line(s)
	if s.CalledFrom != nil {
		text += ", " + names.Lead(s.CalledFrom) + place(s.CalledFrom.Site())
	}
	return text
}

// line is place without its caller, for texts that name the caller at another place.
func line(s *report.Site) string {
	if s == nil {
		return "an unknown place"
	}
	does := ""
	if s.Does != "" {
		does = ", " + s.Does
	}
	return fmt.Sprintf("%s (%s:%d%s)", words.FuncName(s.Func), path.Base(s.File), s.Line, does)
}

// onWhose says on whose goroutine a cause is, and by which waits the request
// depends on it.
func onWhose(via []report.Via) string {
	if len(via) == 0 {
		return "on its own goroutine"
	}
	var waits []string
	for i := range via {
		waits = append(waits, string(via[i].Wait)+" at "+line(via[i].Site))
	}
	s := "on another goroutine, reached through " + waits[0]
	for _, w := range waits[1:] {
		s += ", then " + w
	}
	return s
}

// Calls that rules ask for.
const (
	pause     = "time.Sleep"
	inSelect  = "runtime.selectgo"
	readLock  = "RWMutex).RLock"
	writeLock = "RWMutex).Lock"
)

// inCall names the library function that a wait was in, and nothing for those
// that every wait of a sort is in.
func inCall(call string) string {
	switch call {
	case "", inSelect, "runtime.chanrecv1", "runtime.chanrecv2", "runtime.chansend1", "sync.(*Cond).Wait":
		return ""
	}
	return call
}

// doing says what goes on at a cause.
func doing(c *report.Cause, via []report.Via) string {
	at := place(nonStdSite(c, via))
	call := inCall(c.Call)
	if nonStdSite(c, via) != c.Site {
		call = "" // of the standard library's line, not of the place that is named
	}
	if call != "" {
		call = " in " + call
	}
	switch c.Cause {
	case report.CauseCPU:
		return "computes in " + at
	case report.CauseSleep:
		return timer(c) + " at " + at
	case report.CauseNetwork:
		switch {
		case isFileCall(c.Call):
			return "waits for a pipe" + call + " at " + at
		case c.Kind == "inbound":
			return "waits for the client at " + at
		}
		return "waits for the network" + call + " at " + at
	case report.CauseSyscall:
		return syscallOf(c).doing + call + " at " + at
	}
	return "waits" + call + " at " + at
}

// doing says what goes on at a part.
func (p *causeRoute) doing() string { return doing(p.Cause, p.via) }

// timer says which sort of timer a sleep is.
func timer(c *report.Cause) string {
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

// measured is evidence with a number.
func measured[N int | int64 | float64](text string, value N, unit string) report.Evidence {
	return report.Evidence{Text: text, Value: float64(value), Unit: unit}
}
