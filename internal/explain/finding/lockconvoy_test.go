package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/report"
)

// TestLockOfDependency: all that a library does under its own lock is one work, whichever line called it, and its user cannot
// move it out of the lock. The functions that the library calls back belong to the user.
func TestLockOfDependency(t *testing.T) {
	library := func(fn string, line int, calls string) *report.Site {
		return &report.Site{Func: "example.org/log." + fn, Line: 9, Module: "example.org/log", CalledFrom: &report.Caller{Func: "main.use", Line: line, Calls: calls}}
	}
	lock := []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: library("(*Logger).write", 3, "example.org/log.(*Logger).Info")}}
	for _, c := range []struct {
		name  string
		sites [2]*report.Site
		count int
		fix   string
	}{
		{"work of the library", [2]*report.Site{library("(*sink).send", 1, "example.org/log.(*Logger).Info"), library("(*sink).send", 2, "example.org/log.(*Logger).Warn")}, 1, "have the library do that"},
		{"functions called back", [2]*report.Site{site("format@1"), site("format@2")}, 2, "move main.format"},
		{"functions called back that call another library", [2]*report.Site{library("x", 1, "example.org/other.Ask"), library("x", 2, "example.org/other.Ask")}, 2, "move log.x"},
	} {
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: c.sites[0], Via: lock, TotalNS: ms(3000)}, report.Cause{Cause: "network", Kind: "outbound", Site: c.sites[1], Via: lock, TotalNS: ms(2000)})
		got := rulesByCode(report.RuleLockConvoy)[0].Run(&Input{Report: rep})
		if len(got) != c.count || !strings.HasPrefix(got[0].Fix, c.fix) {
			t.Errorf("%s: %d findings, %+v", c.name, len(got), got)
		}
	}
}
