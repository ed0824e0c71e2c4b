package names

import (
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/report"
)

// CauseStyle returns the terminal's style of a cause, in reports and while watching.
func CauseStyle(c report.CauseName) termtext.Style {
	switch c {
	case report.CauseCPU:
		return termtext.Green
	case report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll, report.CauseCPUWait, report.CauseGCAssist, report.CauseGCWait:
		return termtext.Yellow
	case report.CauseSleep:
		return termtext.Blue
	case report.CauseNetwork:
		return termtext.Magenta
	case report.CauseSyscall, report.CauseDisk:
		return termtext.Cyan
	case report.CauseThrottle, report.CauseSTW, report.CauseLock, report.CauseChan, report.CauseQueue:
		return termtext.Red
	}
	return termtext.Dim
}

// SeverityStyle returns the terminal's style of a finding's severity.
func SeverityStyle(s report.Severity) termtext.Style {
	switch s {
	case report.SeverityHigh:
		return termtext.BoldRed
	case report.SeverityMedium:
		return termtext.Yellow
	}
	return termtext.Dim
}
