package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

const text = `package x

import "time"

func (c *C) run() {
	time.Sleep(c.config.Consumer.MaxProcessingTime * 2)
	t := time.NewTicker(c.conf.Interval)
	for {
		select {
		case <-t.C:
			time.Sleep(time.Hour)
		case <-c.done:
			return
		}
	}
}

func (c *C) two() {
	select {
	case <-time.After(c.short):
	case <-time.After(c.long):
	}
	<-c.answer
	select {
	case <-c.answer:
	case <-time.After(backoff(c.tries)):
	}
}

func (c *C) named(d time.Duration) {
	wait := c.Backoff(c.WaitMin, c.WaitMax)
	pause := wait
	time.Sleep(pause)
	time.Sleep(d)
	grows := c.first
	for {
		time.Sleep(grows)
		grows *= 2
	}
}

func (c *C) made() {
	pause := c.first
	pause += c.more
	time.Sleep(2 * pause)
	s := c.state()
	time.Sleep(s.pause)
	time.Sleep(c.Pause(pause))
}

func (c *C) again() {
	t := time.NewTimer(0)
	u := time.NewTimer(c.first)
	for {
		<-t.C
		t.Reset(c.backoffs[c.tries])
		<-u.C
		u.Reset(c.first)
	}
}
`

// TestWaitLength finds the option that a wait reads, in the source of the report's version and in no other file. It
// fails if another timer of the function is returned, or a line of a file that a hostile trace names.
func TestWaitLength(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		file := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	}
	write("github.com/!big/x@v1.0.0/sub/x.go")
	write("github.com/!big/secret.go")
	cache := Cache{Dirs: []string{t.TempDir(), dir}}
	site := func(line int) *report.Site {
		return &report.Site{File: "github.com/Big/x@v1.0.0/sub/x.go", Line: line, Module: "github.com/Big/x", Version: "v1.0.0"}
	}
	for line, want := range map[int]string{
		6: "c.config.Consumer.MaxProcessingTime * 2", 7: "c.conf.Interval", 9: "c.conf.Interval", 11: "time.Hour", 19: "", 23: "", 24: "backoff(c.tries)", 33: "c.Backoff(c.WaitMin, c.WaitMax)", 34: "", 37: "", 45: "", 47: "", 48: "c.Pause(pause)", 55: "", 57: "c.first", 1: "", 99: "",
	} {
		check.Equal(t, cache.WaitLength(site(line)), want, "line %d", line)
	}
	for name, s := range map[string]report.Site{
		"another version":      {File: "github.com/Big/x@v1.0.1/sub/x.go", Line: 6, Module: "github.com/Big/x", Version: "v1.0.1"},
		"no version":           {File: "/home/u/x.go", Line: 6},
		"a file elsewhere":     {File: "github.com/Big/x@v1.0.0/../secret.go", Line: 6, Module: "github.com/Big/x", Version: "v1.0.0"},
		"a module elsewhere":   {File: "x@v1.0.0/x.go", Line: 6, Module: "../x", Version: "v1.0.0"},
		"a file that is no Go": {File: "github.com/Big/x@v1.0.0/go.mod", Line: 6, Module: "github.com/Big/x", Version: "v1.0.0"},
	} {
		check.Equal(t, cache.WaitLength(&s), "", "%s", name)
	}
	lockSite := *site(6)
	lockSite.Func = "modernc.org/sqlite.busyHandler"
	r := &report.Report{Findings: []report.Finding{{Cause: report.CauseSleep, Site: site(6), Fix: "do"}, {Cause: report.CauseNetwork, Site: site(6), Fix: "do"}, {Cause: report.CauseSleep, Site: &lockSite, Fix: "do"}}}
	cache.AddWaitLengths(r)
	if !strings.Contains(r.Findings[0].Fix, "lower c.config.Consumer.MaxProcessingTime * 2, for which it waits there (source of github.com/Big/x v1.0.0); else do") || r.Findings[1].Fix != "do" || r.Findings[2].Fix != "do" {
		t.Errorf("advice: %q", []string{r.Findings[0].Fix, r.Findings[1].Fix, r.Findings[2].Fix})
	}
}
