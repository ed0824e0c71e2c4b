package names

import "github.com/whylate/whylate/report"

// CauseColour is the colour of a cause wherever a terminal shows it, as the parameter of its escape sequence (ECMA-48, 8.3.117:
// SGR): one of the eight that every terminal has, in the shades its user chose, or dim.
func CauseColour(c report.CauseName) string {
	switch c {
	case report.CauseCPU:
		return "32"
	case report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll, report.CauseGCAssist, report.CauseGCWait:
		return "33"
	case report.CauseSleep:
		return "34"
	case report.CauseNetwork:
		return "35"
	case report.CauseSyscall:
		return "36"
	case report.CauseThrottle, report.CauseSTW, report.CauseLock, report.CauseChan:
		return "31"
	}
	return "2"
}
