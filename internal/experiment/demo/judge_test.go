package demo

import (
	"context"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

func group(name string, causes ...report.Cause) report.Group {
	return report.Group{Name: name, Bands: []report.Band{{Band: report.BandAll, Causes: causes}}}
}

func causeAt(cause report.CauseName, function string, share float64) report.Cause {
	return report.Cause{Cause: cause, Site: &report.Site{Func: function}, Share: share}
}

// judgeGroup judges one group and returns the verdict on the fault with that handler.
func judgeGroup(t *testing.T, g report.Group) Verdict {
	t.Helper()
	var hit *Verdict
	for _, v := range Judge(&report.Report{Groups: []report.Group{g}}) {
		if v.Group != nil {
			must.True(t, hit == nil, "%s is two faults' group", g.Name)
			hit = &v
		} else if v.Found {
			t.Errorf("%s was found without a group", v.Fault.Description)
		}
	}
	must.True(t, hit != nil, "%s is no fault's group", g.Name)
	return *hit
}

func TestJudge(t *testing.T) {
	const pkg = "github.com/whylate/whylate/internal/experiment/demo."
	for _, c := range []struct {
		name  string
		group report.Group
		want  bool
		share float64
	}{
		{"the sleep", group(pkg+"(*service).report", causeAt("sleep", pkg+"(*service).backoff", .9), causeAt("sched", "x", .1)), true, .9},
		{"the sleep elsewhere", group(pkg+"(*service).report", causeAt("sleep", pkg+"(*service).report", .9)), false, .9},
		{"something else at the sleep", group(pkg+"(*service).report", causeAt("network", pkg+"(*service).backoff", .9)), false, .9},
		{"the sleep second", group(pkg+"(*service).report", causeAt("cpu", "x", .6), causeAt("sleep", pkg+"(*service).backoff", .4)), false, .6},
		{"the write, at two lines", group(pkg+"(*service).order", causeAt("sched", "x", .4), causeAt("network", pkg+"(*journal).append", .3), causeAt("network", pkg+"(*journal).append", .3)), true, .6},
		{"the hogs, as several causes", group(pkg+"(*service).price", causeAt("network", pkg+"(*service).queryStore", .4), causeAt("sched", pkg+"(*service).queryStore", .35),
			causeAt("sched-poll", pkg+"(*service).queryStore", .25)), true, .6},
		{"the hogs, but less than the network", group(pkg+"(*service).price", causeAt("network", pkg+"(*service).queryStore", .7), causeAt("sched", pkg+"(*service).queryStore", .3)), false, .7},
		{"nothing but the rest", group(pkg+"(*service).price", causeAt(report.CauseOther, "", 1)), false, 0},
	} {
		v := judgeGroup(t, c.group)
		check.True(t, v.Found == c.want && v.Share >= c.share-.001 && v.Share <= c.share+.001,
			"%s: found %v with %.2f, want %v with %.2f", c.name, v.Found, v.Share, c.want, c.share)
	}
	for _, v := range Judge(&report.Report{Groups: []report.Group{{Name: pkg + "(*service).report"}}}) {
		check.False(t, v.Found, "%s was found in a group without bands", v.Fault.Description)
	}
}

func TestServeWithoutAStore(t *testing.T) {
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := l.Addr().String()
	l.Close()
	check.Error(t, Serve(context.Background(), address, "", func(string) { t.Error("ready") }), "no error")
}

// TestFaultsAreDeclared: the handler and the site of each fault are methods of the service, however it is changed.
func TestFaultsAreDeclared(t *testing.T) {
	source := string(must.Have(os.ReadFile("service.go"))(t))
	for _, f := range Faults() {
		for _, method := range []string{f.Handler, f.Site} {
			receiver, name, _ := strings.Cut(strings.TrimPrefix(method, "(*"), ").")
			check.True(t, regexp.MustCompile(`(?m)^func \(\w+ \*`+receiver+`\) `+name+`\(`).MatchString(source),
				"%s: the service has no method %s", f.Description, method)
		}
	}
}
