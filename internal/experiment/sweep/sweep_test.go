package sweep

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

var update = flag.Bool("update", false, "write the golden files")

func TestArms(t *testing.T) {
	arms, err := Arms([]Axis{{GOMAXPROCS, []string{"1", "2"}}, {"POOL", []string{"a=b", ""}}, {Rate, []string{"200", "1..5"}}})
	if err != nil || len(arms) != 8 || arms[0].String() != "gomaxprocs=1 POOL=a=b rate=200" || arms[7].String() != "gomaxprocs=2 POOL= rate=1..5" {
		t.Errorf("%v, %v", arms, err)
	}
	check.Equal(t, arms[7].withoutLoad().String(), "gomaxprocs=2 POOL=", "the service's settings")
	rate := Axis{Rate, []string{"1"}}
	for name, axes := range map[string][]Axis{
		"no load":        {{GOMAXPROCS, []string{"1"}}},
		"two loads":      {rate, {LoadShare, []string{"50%"}}},
		"twice":          {rate, {GOGC, []string{"1"}}, {GOGC, []string{"2"}}},
		"equal values":   {rate, {GOGC, []string{"50", "50"}}},
		"gomaxprocs 0":   {rate, {GOMAXPROCS, []string{"0"}}},
		"gogc":           {rate, {GOGC, []string{"-1"}}},
		"quota":          {rate, {Quota, []string{"half"}}},
		"quota 0":        {rate, {Quota, []string{"0"}}},
		"quota NaN":      {rate, {Quota, []string{"NaN"}}},
		"memory":         {rate, {Memory, []string{"lots"}}},
		"share":          {{LoadShare, []string{"-5%"}}},
		"rate":           {{Rate, []string{"0"}}},
		"instances":      {rate, {Instances, []string{"0"}}},
		"a bad variable": {rate, {"A=B", []string{"0"}}},
		"too many":       {rate, {"A", strings.Split(strings.Repeat("x,", 40), ",")}, {"B", strings.Split(strings.Repeat("x,", 40), ",")}},
	} {
		if got, err := Arms(axes); err == nil {
			t.Errorf("%s gives %v", name, got)
		}
	}
	for s, want := range map[string]int64{"512MiB": 512 << 20, "1.5GiB": 3 << 29, "7": 7, "20MB": 20e6, "3B": 3} {
		if got, err := words.ParseBytes(s); got != want || err != nil {
			t.Errorf("%s is %d bytes, %v", s, got, err)
		}
	}
}

// result returns a result with one axis, with the given runs of each arm.
func result(o Options, axis Axis, runs [][]Run) *Result {
	arms, err := Arms([]Axis{axis, {Rate, []string{"100"}}})
	if err != nil {
		panic(err)
	}
	o.Command, o.Load.Targets = []string{"server"}, []load.Target{{URL: "http://u:secret@127.0.0.1/x?token=1"}}
	r := newResult(&o, arms)
	for i, list := range runs {
		for n, run := range list {
			run.Settings, run.Number = arms[i].Map(), n
			r.Measurements = append(r.Measurements, run)
		}
	}
	r.summarize()
	return r
}

func runsOf(p99, cpu, memory float64, n int) (out []Run) {
	for i := range n {
		f := 1 + 0.02*float64(i%3-1)
		gcs, gcCPU := int64(10), int64(cpu/10)
		out = append(out, Run{
			Load:  &load.Result{Intended: load.Percentiles{P50: int64(p99 / 2 * f), P90: int64(p99 * f), P99: int64(p99 * f), P999: int64(p99 * 2 * f), Max: int64(p99 * 3)}, Requests: 100, AchievedPerS: 100, Valid: true},
			CPUNS: int64(100 * cpu * f), MemoryPeak: int64(memory * f), GCs: &gcs, GCCPUNS: &gcCPU, Causes: []Cause{{Cause: "throttle", Share: 0.8}, {Cause: "cpu", Share: 0.2}},
		})
	}
	return out
}

// TestChoose: the best arms are those with the best figures, ties are listed, and the price of the
// recommended arm has the figures that get worse.
func TestChoose(t *testing.T) {
	axis := Axis{GOMAXPROCS, []string{"1", "2", "8"}}
	r := result(Options{Runs: 5}, axis, [][]Run{runsOf(20e6, 1e6, 1e8, 5), runsOf(10e6, 1.5e6, 1e8, 5), runsOf(40e6, 2e6, 2e8, 5)})
	check.True(t, r.Best["p99_ns"] == 1 && r.Best["cpu_ns_per_request"] == 0 && r.Best["recommended"] == 1 && len(r.Ties["p99_ns"]) == 0,
		"best %v, ties %v", r.Best, r.Ties)
	check.True(t, len(r.Ties["memory_peak_bytes"]) == 1 && len(r.Ties["per_s"]) == 2, "ties %v", r.Ties)
	if a := r.Recommended; !strings.Contains(a.Better, "p99 -50%") || !strings.Contains(a.Price, "CPU per request +50%") || strings.Contains(a.Price, "memory") {
		t.Errorf("%+v", a)
	}
	if d := r.Arms[2].Changes["p99_ns"]; !d.Evidence || d.Est < 0.95 || d.Est > 1.05 {
		t.Errorf("the third arm's p99 against the first: %+v", d)
	}
	var b bytes.Buffer
	must.Do(t, WriteText(&b, r))
	for _, want := range []string{"+100%", "~", "best p99:            gomaxprocs=2", "throttle 80%, cpu 20%", "Its price: CPU per request +50%"} {
		check.True(t, strings.Contains(b.String(), want), "no %q in\n%s", want, b.String())
	}
	check.True(t, !strings.Contains(b.String(), "secret") && !strings.Contains(b.String(), "token"), "a credential is in the text")

	// Equal arms: the first is as good as any.
	r = result(Options{Runs: 5}, axis, [][]Run{runsOf(20e6, 1e6, 1e8, 5), runsOf(20e6, 1e6, 1e8, 5), runsOf(20e6, 1e6, 1e8, 5)})
	check.True(t, r.Best["recommended"] == 0 && r.Recommended.Better+r.Recommended.Price == "", "of equal arms, %+v", r.Recommended)
	// As low a p99 for less CPU.
	r = result(Options{Runs: 5}, axis, [][]Run{runsOf(20e6, 2e6, 1e8, 5), runsOf(20.1e6, 1e6, 1e8, 5), runsOf(40e6, 0.5e6, 1e8, 5)})
	check.Equal(t, r.Best["recommended"], 1, "for less CPU, %+v", r.Recommended)
	// Goals: the cheapest arm that meets them, with the interval's upper end.
	slo := must.Have(ParseSLO("p99=41ms,p99.9=81ms"))(t)
	arms := [][]Run{runsOf(20e6, 2e6, 1e8, 5), runsOf(10e6, 1e6, 1e8, 5), runsOf(40e6, 0.5e6, 1e8, 5)}
	if r = result(Options{Runs: 5, SLO: slo}, axis, arms); r.Best["slo"] != 1 || r.Best["recommended"] != 1 {
		t.Errorf("p99.9 of the third is just below, its interval is not: %v", r.Best)
	}
	slo[0].Limit, slo[1].Limit = time.Millisecond, time.Millisecond
	if r = result(Options{Runs: 5, SLO: slo}, axis, arms); r.Best["recommended"] != 1 || !strings.Contains(r.Recommended.Reason, "no arm certainly meets") {
		t.Errorf("goals beyond all arms: %v %+v", r.Best, r.Recommended)
	}
	if _, ok := r.Best["slo"]; ok {
		t.Error("an arm meets goals that none does")
	}
	// A failed arm is not chosen, and says why.
	arms[1][0] = Run{Error: "it died"}
	if r = result(Options{Runs: 5}, axis, arms); r.Best["p99_ns"] != 0 || r.Arms[1].Failed != 1 || r.Arms[1].Errors[0] != "it died" || r.Arms[1].Runs != 4 {
		t.Errorf("%v %+v", r.Best, r.Arms[1])
	}
	const prefix = "excluded, because runs failed or none is valid: "
	b.Reset()
	must.Do(t, WriteText(&b, r))
	check.True(t, strings.Contains(b.String(), prefix+r.Arms[1].settings.String()+"\n"), "the failed arm is not named in\n%s", b.String())
	b.Reset()
	must.Do(t, WriteText(&b, result(Options{Runs: 5, SLO: slo}, axis, [][]Run{arms[0], arms[2], arms[0]})))
	check.False(t, strings.Contains(b.String(), prefix), "no arm failed:\n%s", b.String())
	// None at all.
	r = result(Options{Runs: 5}, axis, [][]Run{{{Error: "it died"}}, nil, nil})
	check.True(t, len(r.Best) == 0 && r.Recommended == nil && r.Arms[0].P99 == nil, "without a single run: %+v", r)
	if err := WriteText(&b, r); err != nil {
		t.Error(err)
	}
}

// TestKnee: the collector's CPU time falls as 1/GOGC and memory grows with GOGC; the knee is at the
// balance of both.
func TestKnee(t *testing.T) {
	var runs [][]Run
	values := []string{"50", "100", "200", "400", "800"}
	for _, gogc := range []float64{50, 100, 200, 400, 800} {
		list := runsOf(20e6, 1e6, 100e6*(1+gogc/100), 3)
		for i := range list {
			ns := int64(1e9 / gogc * 50)
			list[i].GCCPUNS = &ns
		}
		runs = append(runs, list)
	}
	r := result(Options{Runs: 3}, Axis{GOGC, values}, runs)
	if r.Knee == nil || r.Knee.Value != "200" || !strings.Contains(r.Knee.Text, "80% of what GOGC=800 saves") || !strings.Contains(r.Knee.Text, "for 20% of the memory") {
		t.Errorf("%+v", r.Knee)
	}
	// An arm of which something is not known is left out.
	for missing, forget := range map[string]func(*Arm){"memory": func(a *Arm) { a.MemoryPeak = nil }, "CPU": func(a *Arm) { a.GCCPU = nil }} {
		r := result(Options{Runs: 3}, Axis{GOGC, values}, runs)
		if forget(&r.Arms[4]); r.findKnee() == nil || !strings.Contains(r.findKnee().Text, "GOGC=400 saves") {
			t.Errorf("without the %s of the last arm: %+v", missing, r.findKnee())
		}
	}
	one := int64(1)
	for i := range runs[4] { // too few collections at the largest value: its memory is not final
		runs[4][i].GCs = &one
	}
	if r := result(Options{Runs: 3}, Axis{GOGC, values}, runs); r.Knee == nil || !strings.Contains(r.Knee.Text, "GOGC=400 saves") {
		t.Errorf("with a value that hardly collects: %+v", r.Knee)
	}
	straight := make([][]Run, 5)
	for i := range straight { // a straight line has no knee
		straight[i] = runsOf(20e6, 1e6, 100e6*float64(i+1), 3)
		for j := range straight[i] {
			ns := int64(1e9 * float64(6-i))
			straight[i][j].GCCPUNS = &ns
		}
	}
	if r := result(Options{Runs: 3}, Axis{GOGC, values}, straight); r.Knee != nil {
		t.Errorf("a straight line has a knee: %+v", r.Knee)
	}
	if r := result(Options{Runs: 3}, Axis{GOGC, values[:3]}, runs[:3]); r.Knee != nil {
		t.Errorf("three points have a knee: %+v", r.Knee)
	}
}

// TestJSON: the JSON has the documented fields, and a result that is read back gives the same arms.
func TestJSON(t *testing.T) {
	o := Options{Runs: 3, Measure: time.Second}
	r := result(o, Axis{GOMAXPROCS, []string{"1", "2"}}, [][]Run{runsOf(20e6, 1e6, 1e8, 3), runsOf(10e6, 1e6, 1e8, 3)})
	b := must.Have(json.Marshal(r))(t)
	type figure struct{ Est, Low, High *float64 }
	var got struct {
		Arms []struct {
			Settings map[string]string
			Runs     int
			P50      *figure `json:"p50_ns"`
			P99      *figure `json:"p99_ns"`
			PerS     *figure `json:"per_s"`
			CPU      *figure `json:"cpu_ns_per_request"`
			Causes   []struct{ Cause string }
		}
		Best map[string]int
	}
	must.Do(t, json.Unmarshal(b, &got))
	if len(got.Arms) != 2 || got.Arms[1].Settings["gomaxprocs"] != "2" || got.Arms[1].Runs != 3 || got.Arms[1].Causes[0].Cause != "throttle" || got.Best["p99_ns"] != 1 {
		t.Errorf("%s", b)
	}
	for _, f := range []*figure{got.Arms[0].P50, got.Arms[0].P99, got.Arms[0].PerS, got.Arms[0].CPU} {
		check.True(t, f != nil && f.Est != nil && f.Low != nil && f.High != nil && *f.Low <= *f.Est && *f.High >= *f.Est,
			"a figure is %+v", f)
	}
	reread := must.Have(Read(bytes.NewReader(b)))(t)
	o.Command, o.Load.Targets = []string{"server"}, []load.Target{{URL: "http://u:secret@127.0.0.1/x?token=1"}}
	if err := o.Resume(reread); err != nil || len(o.FinishedRuns) != 6 {
		t.Errorf("%d runs, %v", len(o.FinishedRuns), err)
	}
	o.Command = []string{"other"}
	check.Error(t, o.Resume(reread), "another command's runs are taken")
	for _, bad := range []string{"", "{}", "[]", `{"schema":"whylate.report/v1"}`} {
		if _, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is a result", bad)
		}
	}
}

func TestParseSLO(t *testing.T) {
	for _, bad := range []string{"", "p99", "p98=1s", "p99=fast", "p99=-1s", "p99=1s,"} {
		if got, err := ParseSLO(bad); err == nil {
			t.Errorf("%q gives %v", bad, got)
		}
	}
	if got, err := ParseSLO("p99=20ms, max=1s"); err != nil || fmt.Sprint(got) != "[p99=20ms max=1s]" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestHTML: the page has no external resources, has the plots, and escapes quoted text.
func TestHTML(t *testing.T) {
	axis := Axis{"MODE", []string{"</pre><script>alert(1)</script>", "2", "8"}}
	r := result(Options{Runs: 5}, axis, [][]Run{runsOf(20e6, 1e6, 1e8, 5), runsOf(10e6, 1.5e6, 1e8, 5), runsOf(40e6, 2e6, 2e8, 5)})
	var b bytes.Buffer
	must.Do(t, WriteHTML(&b, r))
	page := b.String()
	for _, want := range []string{"Latency by arm", "Throughput against p99.9", "CPU time per request by arm", "Its price: CPU per request", "var(--throttle)"} {
		check.True(t, strings.Contains(page, want), "no %q in the page", want)
	}
	for _, bad := range []string{"<script", "secret", "http://", "ZgotmplZ", "NaN", "Inf"} {
		check.False(t, strings.Contains(strings.ReplaceAll(page, "http://127.0.0.1/x", ""), bad), "%q is in the page", bad)
	}
	// A circle for each percentile of each arm at least, inside of the picture.
	if n := strings.Count(page, "<circle"); n < 12+3+3+3 {
		t.Errorf("%d points", n)
	}
	for _, p := range r.plots() {
		for _, s := range p.Series {
			for _, q := range s.Points {
				check.True(t, q.X >= p.LeftEdge && q.X <= p.RightEdge && q.Y >= p.Top && q.Y <= p.Bottom && q.High <= q.Y && q.Low >= q.Y,
					"%s: a point at %+v", p.Title, q)
			}
		}
	}
	empty := result(Options{Runs: 5}, axis, [][]Run{{{Error: "it died"}}, nil, nil})
	if err := WriteHTML(&b, empty); err != nil {
		t.Error(err)
	}
}

// TestWideIntervals: a very wide interval does not compress the rest of the plot, and a narrow one is
// drawn in full.
func TestWideIntervals(t *testing.T) {
	bounds := func(low, high float64) []series {
		s := series{Points: []point{newPoint(1, &Figure{Est: 10}, ""), newPoint(2, &Figure{Est: 20}, ""), newPoint(3, &Figure{Est: 30, Low: &low, High: &high}, "")}}
		return []series{s}
	}
	for _, logarithmic := range []bool{false, true} {
		for name, c := range map[string]struct {
			all []series
			far bool
		}{"near": {bounds(25, 35), false}, "at the border": {bounds(5, 80), false}, "far": {bounds(1e-3, 1e9), true}} {
			var p plot
			must.True(t, p.draw(c.all, asCount, asCount, []float64{1, 2, 3}, [2]float64{0, 4}, logarithmic), "%s: nothing is drawn", name)
			q := p.Series[0].Points
			if high := (p.Bottom - q[2].Y) / (p.Bottom - p.Top); high < 0.3 || q[0].Y-q[2].Y < 0.15*(p.Bottom-p.Top) {
				t.Errorf("%s, logarithmic %v: points at %.0f and %.0f of %.0f to %.0f", name, logarithmic, q[0].Y, q[2].Y, p.Bottom, p.Top)
			}
			check.Equal(t, q[2].High <= p.Top || q[2].Low >= p.Bottom, c.far,
				"%s, logarithmic %v: the interval is cut off", name, logarithmic)
			check.True(t, slices.IsSortedFunc(q, func(a, b point) int { return cmp.Compare(b.Y, a.Y) }) && q[0].X < q[1].X && q[1].X < q[2].X,
				"%s: points %+v", name, q)
			for _, line := range p.Grid {
				check.True(t, line.Position >= p.Top && line.Position <= p.Bottom, "%s: a line at %v", name, line)
			}
			check.True(t, len(p.Grid) >= 2, "%s: %d lines", name, len(p.Grid))
		}
	}
}

// TestTicks: ticks are round numbers in the range, neither few nor many.
func TestTicks(t *testing.T) {
	for _, c := range []struct{ low, high float64 }{{0, 1}, {0, 3}, {0, 7}, {0, 10}, {3, 97}, {990, 1010}, {0.02, 0.05}, {1e6, 9e9}} {
		got := ticksOf(c.low, c.high)
		check.True(t, len(got) >= 2 && len(got) <= 7 && got[0] >= c.low && got[len(got)-1] <= c.high*1.0002,
			"%v to %v: %v", c.low, c.high, got)
		for _, v := range got[1:] {
			if r := (v - got[0]) / (got[1] - got[0]); math.Abs(r-math.Round(r)) > 1e-9 {
				t.Errorf("%v to %v: %v", c.low, c.high, got)
			}
		}
	}
	if got := ticksOf(5, 5); len(got) != 1 || got[0] != 5 {
		t.Errorf("a single value: %v", got)
	}
}

// TestTable: the columns of the text, the column with changes, failed and invalid runs, two loads.
func TestTable(t *testing.T) {
	arms := must.Have(Arms([]Axis{{GOGC, []string{"100", "400"}}, {Rate, []string{"50", "100"}}}))(t)
	o := Options{Runs: 3, Measure: 10 * time.Second, Warmup: 2 * time.Second, Command: []string{"server"}, Load: load.Options{Targets: []load.Target{{URL: "http://127.0.0.1/"}}}}
	r := newResult(&o, arms)
	throttled, periods, zero := int64(5e6), int64(10), int64(0)
	for i, arm := range arms {
		for n, run := range runsOf(20e6/float64(1+i/2), 1e6, 1e8, 3) {
			run.Settings, run.Number = arm.Map(), n
			run.Load.AchievedPerS = []float64{50, 90}[i%2]
			run.Periods, run.ThrottledPeriods, run.ThrottledNS = &periods, &zero, &zero
			if i == 3 {
				run.ThrottledPeriods, run.ThrottledNS = &periods, &throttled
				run.Load.Valid = n > 0
			}
			r.Measurements = append(r.Measurements, run)
		}
	}
	r.Measurements = append(r.Measurements, Run{Settings: arms[2].Map(), Number: 3, Error: "it died"})
	r.summarize()
	var b bytes.Buffer
	must.Do(t, WriteText(&b, r))
	must.Golden(t, *update, "testdata/table.txt", b.Bytes())
}

// TestHighestLoad: with several loads the choice is for the highest requested one, reached or not, in
// any order of arms; if the rates are not numbers, for the one with the most answers.
func TestHighestLoad(t *testing.T) {
	for _, c := range []struct {
		loads []string
		reach []float64
		want  int
	}{
		{[]string{"50", "100", "75"}, []float64{50, 60, 75}, 1},
		{[]string{"100", "50"}, []float64{40, 50}, 0},
		{[]string{"9", "10"}, []float64{9, 10}, 1},
		{[]string{"1..5", "1..50", "1..20"}, []float64{3, 25, 10}, 1},
		{[]string{"100"}, []float64{80}, 0},
	} {
		arms := must.Have(Arms([]Axis{{Rate, c.loads}}))(t)
		o := Options{Runs: 3, Command: []string{"server"}, Load: load.Options{Targets: []load.Target{{URL: "http://127.0.0.1/"}}}}
		r := newResult(&o, arms)
		for i, arm := range arms {
			for n, run := range runsOf(20e6, 1e6, 1e8, 3) {
				run.Settings, run.Number, run.Load.AchievedPerS = arm.Map(), n, c.reach[i]
				r.Measurements = append(r.Measurements, run)
			}
		}
		if r.summarize(); r.Best["p99_ns"] != c.want || r.Best["recommended"] != c.want || r.Recommended.Arm != c.want || (r.ByLoad != nil) != (len(arms) > 1) || len(r.ByLoad) > 0 && len(r.ByLoad) != len(arms) {
			t.Errorf("%v, reached %v: %v, by load %v", c.loads, c.reach, r.Best, r.ByLoad)
		}
	}
}

// TestRanges: the ends of each range in a message are allowed, and values beyond are not.
func TestRanges(t *testing.T) {
	one := func(change func(*Options)) error {
		o := Options{Command: []string{"server"}, Load: load.Options{Targets: []load.Target{{URL: "http://127.0.0.1/"}}}, Runs: 5, Measure: time.Second, Axes: []Axis{{Rate, []string{"1"}}}}
		change(&o)
		return o.Check()
	}
	for name, c := range map[string]struct {
		min, max, step int64
		set            func(o *Options, v int64)
	}{
		"runs":    {1, maxRuns, 1, func(o *Options, v int64) { o.Runs = int(v) }},
		"measure": {int64(100 * time.Millisecond), int64(MaxDuration), 1, func(o *Options, v int64) { o.Measure = time.Duration(v) }},
		"warm-up": {0, int64(MaxDuration), 1, func(o *Options, v int64) { o.Warmup = time.Duration(v) }},
		"trace":   {0, int64(time.Minute), 1, func(o *Options, v int64) { o.Trace = time.Duration(v) }},
		"ready":   {1, int64(10 * time.Minute), 2, func(o *Options, v int64) { o.ReadyTimeout = time.Duration(v) }}, // 0 is the default
	} {
		for v, ok := range map[int64]bool{c.min: true, c.max: true, c.min - c.step: false, c.max + c.step: false} {
			if err := one(func(o *Options) { c.set(o, v) }); (err == nil) != ok {
				t.Errorf("%s of %d: %v", name, v, err)
			}
		}
	}
	for text, change := range map[string]func(*Options){
		"after --":   func(o *Options) { o.Command = nil },
		"with --url": func(o *Options) { o.Load.Targets = nil },
		"write it":   func(o *Options) { o.Load.Targets[0].URL = "ftp://h/" },
		"as http":    func(o *Options) { o.Load.Targets[0].URL = "http:///x" },
		"{port}":     func(o *Options) { o.Axes = append(o.Axes, Axis{Instances, []string{"2"}}) },
	} {
		if err := one(change); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := one(func(o *Options) {
		o.Axes, o.Load.Targets[0].URL = append(o.Axes, Axis{Instances, []string{"1", "2"}}), "http://127.0.0.1:{port}/"
	}); err != nil {
		t.Errorf("two instances with a port each: %v", err)
	}
}
