package finding

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestOneFaultAtSeveralSites checks that waits at several sites of a dependency are one finding for each line of the
// service that led to them, with one prediction for all of its sites. Timers without a calling line are one finding
// for the dependency. Predictions of two findings do not count the same time twice.
func TestOneFaultAtSeveralSites(t *testing.T) {
	in := func(line int, fromLine int) *report.Site {
		s := &report.Site{Func: "dep.org/client.(*C).wait", File: "dep.org/client@v1.2.0/c.go", Line: line, Module: "dep.org/client", Version: "v1.2.0"}
		if fromLine > 0 {
			s.CalledFrom = &report.Caller{Func: "main.load", File: "/src/main.go", Line: fromLine, Calls: "dep.org/client.(*C).Do"}
		}
		return s
	}
	waited := func(line, fromLine int) *report.Site { // another goroutine waits
		s := in(line, fromLine)
		s.CalledFrom.Calls = ""
		return s
	}
	sleepOf := func(s *report.Site, perRequest int64, requests int) report.Cause {
		return report.Cause{Cause: report.CauseSleep, Site: s, Call: "time.Sleep", TotalNS: 100 * perRequest, Requests: requests}
	}
	sleep := func(s *report.Site, perRequest int64) report.Cause { return sleepOf(s, perRequest, 100) }
	for _, c := range []struct {
		name   string
		causes []report.Cause
		want   []string // the changes of each finding's prediction
	}{
		{
			"one line, two sites", []report.Cause{sleep(in(20, 5), ms(200)), sleep(in(10, 5), ms(100))},
			[]string{"sleep@dep.org/client.(*C).wait:20 from main.load:5=5%, sleep@dep.org/client.(*C).wait:10 from main.load:5=5%"},
		},
		{
			"two lines, one site", []report.Cause{sleepOf(in(10, 5), ms(200), 60), sleepOf(in(10, 9), ms(100), 40)},
			[]string{"sleep@dep.org/client.(*C).wait:10 from main.load:5=5%", "sleep@dep.org/client.(*C).wait:10 from main.load:9=5%"},
		},
		{
			"two lines wait for one site", []report.Cause{sleepOf(waited(10, 5), ms(240), 60), sleepOf(waited(10, 9), ms(60), 40)},
			[]string{"sleep@dep.org/client.(*C).wait:10 from main.load:5=5%", "sleep@dep.org/client.(*C).wait:10 from main.load:9=5%"},
		},
		{
			"one line calls, one waits", []report.Cause{sleepOf(in(10, 5), ms(200), 60), sleepOf(waited(10, 9), ms(100), 40)},
			[]string{"sleep@dep.org/client.(*C).wait:10 from main.load:5=5%", "sleep@dep.org/client.(*C).wait:10 from main.load:9=5%"},
		},
		{
			"in each request, whichever line calls", []report.Cause{sleep(in(20, 5), ms(200)), sleep(in(10, 9), ms(100))},
			[]string{"sleep@dep.org/client.(*C).wait:20 from main.load:5=5%, sleep@dep.org/client.(*C).wait:10 from main.load:9=5%"},
		},
		{
			"a dependency's own timers", []report.Cause{sleep(in(20, 0), ms(200)), sleep(in(10, 0), ms(100))},
			[]string{"sleep@dep.org/client.(*C).wait:20=5%, sleep@dep.org/client.(*C).wait:10=5%"},
		},
		{
			"too little for a second site", []report.Cause{sleep(in(20, 5), ms(200)), sleep(in(10, 5), ms(1))},
			[]string{"sleep@dep.org/client.(*C).wait:20 from main.load:5=5%"},
		},
	} {
		var got []string
		input := &Input{Report: oneGroup(c.causes...), Process: &process.Stats{}, Predict: func(_ string, changes []predict.Change) *report.Predicted {
			var text []string
			for _, ch := range changes {
				text = append(text, ch.String())
			}
			return &report.Predicted{Change: strings.Join(text, ", ")}
		}}
		for _, f := range findAll(t, input, rulesWithPrefix("WL2001")) {
			got = append(got, f.Predicted.Change)
		}
		check.True(t, slices.Equal(got, c.want), "%s:\n%q, want\n%q", c.name, got, c.want)
	}
}

// TestWriteForSeveralLines: a logger writes to one file, whichever line of the service logs, so one finding predicts all of its
// writes. The writes of a library for one line are predicted as of that line.
func TestWriteForSeveralLines(t *testing.T) {
	write := func(fromLine int, perRequest int64) report.Cause {
		s := &report.Site{Func: "dep.org/log.(*Core).Write", File: "dep.org/log@v1.2.0/c.go", Line: 10, Module: "dep.org/log", Version: "v1.2.0",
			CalledFrom: &report.Caller{Func: "main.load", File: "/src/main.go", Line: fromLine, Calls: "dep.org/log.(*Logger).Info"}}
		return report.Cause{Cause: report.CauseSyscall, Call: "os.(*File).Write", Site: s, TotalNS: 100 * perRequest, Requests: 100}
	}
	for _, c := range []struct {
		causes []report.Cause
		want   string
	}{
		{[]report.Cause{write(5, ms(200)), write(9, ms(100))}, "syscall@dep.org/log.(*Core).Write:10=gone"},
		{[]report.Cause{write(5, ms(200))}, "syscall@dep.org/log.(*Core).Write:10 from main.load:5=gone"},
	} {
		in := &Input{Report: oneGroup(c.causes...), Process: &process.Stats{}, Predict: func(_ string, changes []predict.Change) *report.Predicted {
			return &report.Predicted{Change: changes[0].String()}
		}}
		got := findAll(t, in, rulesWithPrefix("WL2007"))
		check.True(t, len(got) == 1 && got[0].Predicted.Change == c.want, "%d lines: %+v, want %s", len(c.causes), got, c.want)
	}
}
