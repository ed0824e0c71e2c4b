package acceptance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// A capacityTruth is a measurement of a service of lab/capacity: the most requests a second that it served for 64 clients, each
// with one request at a time, and the 99th percentile of independent requests at 80 % of that. The recording has 30 to 40 % of it.
type capacityTruth struct {
	kind    report.LimitKind
	line    int
	servers float64
	knee    float64
	p99NS   float64
}

// The recordings of lab/recordings/capacity, each of one second.
var capacityTruths = map[string]capacityTruth{
	"mix":       {report.LimitLock, 194, 1, 354, 58.1e6},  // -kind mix -work 3ms, 127 requests/s: 6 of /, 3 of /cheap, 1 of /dear
	"rwlock":    {report.LimitLock, 203, 1, 600, 81.3e6},  // -kind rwlock -n 4 -work 3ms, 168 requests/s, of which a quarter writes
	"semaphore": {report.LimitPool, 78, 3, 564, 28.1e6},   // -kind semaphore -n 3 -work 5ms, 181 requests/s
	"stage":     {report.LimitStage, 216, 1, 455, 41.2e6}, // -kind stage -n 1 -work 2ms, 146 requests/s
}

// TestCapacity compares the first limit, its load, and the latency near it with measurements.
func TestCapacity(t *testing.T) {
	for name, truth := range capacityTruths {
		t.Run(name, func(t *testing.T) {
			c := capacityOf(t, name, fmt.Sprintf("load=%g", 0.8*truth.knee))
			must.True(t, len(c.Limits) != 0, "no limit")
			first := &c.Limits[0]
			check.True(t, first.Kind == truth.kind && first.Site != nil && first.Site.Line == truth.line && first.Servers == truth.servers,
				"first limit %s %v with %g servers, want %s line %d with %g", first.Kind, first.Site, first.Servers, truth.kind, truth.line, truth.servers)
			if ratio := first.SaturatesPerS / truth.knee; math.Abs(ratio-1) > 0.2 {
				t.Errorf("it saturates at %g/s, measured %g/s", first.SaturatesPerS, truth.knee)
			}
			for i := range c.Curve {
				if p := &c.Curve[i]; math.Abs(p.LoadPerS/(0.8*truth.knee)-1) < 0.01 {
					if ratio := float64(p.P99NS) / truth.p99NS; ratio > 2 || ratio < 0.5 {
						t.Errorf("p99 %d ns at %g/s, measured %g ns", p.P99NS, p.LoadPerS, truth.p99NS)
					}
					return
				}
			}
			t.Errorf("the curve has no point at %g/s", 0.8*truth.knee)
		})
	}
	files := must.Have(filepath.Glob(filepath.Join(testprog.RecordingsDir(t), "capacity", "*")))(t)
	check.True(t, len(files) == len(capacityTruths), "%d recordings have %d truths", len(files), len(capacityTruths))
}

// TestCapacityByGroup finds that a third of the lock's time is for the few requests that need it for three times as long.
func TestCapacityByGroup(t *testing.T) {
	groups := capacityOf(t, "mix").Limits[0].Groups
	check.True(t, len(groups) == 2 && groups[0].Share >= 0.55 && groups[0].Share <= 0.8,
		"the lock is used by %+v, want two groups with about 2/3 and 1/3", groups)
}

// TestCapacityOfWrites finds that those requests use up an RWMutex that write, not those that wait for it most.
func TestCapacityOfWrites(t *testing.T) {
	groups := capacityOf(t, "rwlock").Limits[0].Groups
	check.True(t, len(groups) == 1 && groups[0].Name == "main.(*service).rebuildTable", "the lock is used by %+v", groups)
}

// TestCapacityChanges combines changes with a recording.
func TestCapacityChanges(t *testing.T) {
	today := capacityOf(t, "semaphore").Limits[0].SaturatesPerS
	more := capacityOf(t, "semaphore", "slots@main.go:78=6")
	if ratio := more.Limits[0].SaturatesPerS / today; math.Abs(ratio-2) > 0.01 {
		t.Errorf("twice the slots saturate at %g times the load", ratio)
	}
	if c := capacityOf(t, "semaphore", "load=10x"); !strings.HasPrefix(c.Text, "today 181/s; does not reach 1,810/s; first limit: pool of 3 ") {
		t.Errorf("with ten times the load: %s", c.Text)
	}
	quota := capacityOf(t, "semaphore", "slots@main.go:78=1000", "quota=0.1").Limits[0]
	check.True(t, quota.Kind == report.LimitQuota && quota.Servers == 0.1, "with 1,000 slots the first limit is %+v", quota)
	if unlocked := capacityOf(t, "mix", "unlock@main.go:194").Limits[0]; unlocked.Kind != report.LimitCPU {
		t.Errorf("without the lock the first limit is %+v", unlocked)
	}
	half := capacityOf(t, "stage", "main.go:216=50%").Limits[0].SaturatesPerS / capacityOf(t, "stage").Limits[0].SaturatesPerS
	check.True(t, math.Abs(half-2) <= 0.01, "half the work of a stage saturates at %g times the load", half)
}

// TestCapacityText reads the answer as a person does.
func TestCapacityText(t *testing.T) {
	var stdout, stderr bytes.Buffer
	page := filepath.Join(t.TempDir(), "x.html")
	cli.Run(t.Context(), []string{"capacity", "--slo", "p99=20ms", "--html", page, testprog.Recording(t, "capacity/semaphore.trace")}, strings.NewReader(""), &stdout, &stderr)
	text := strings.Join(strings.Fields(stdout.String()+stderr.String()), " ")
	for _, want := range []string{
		"today 181/s; first limit: pool of 3 main.init.func3.1 main.go:78 at", "then CPU of 2 CPUs",
		"locks and pools for which no request waited in this recording", "p99=20ms: up to",
	} {
		check.True(t, strings.Contains(text, want), "the answer lacks %q:\n%s", want, stdout.String()+stderr.String())
	}
	if html := must.Have(os.ReadFile(page))(t); !bytes.Contains(html, []byte(`"saturates_per_s"`)) || !bytes.Contains(html, []byte("drawCurve")) {
		t.Error("the page has no curve")
	}
}

// TestCapacityInReport adds the limits to a report, without latencies at other loads.
func TestCapacityInReport(t *testing.T) {
	var stdout, stderr bytes.Buffer
	args := []string{"explain", "--capacity", testprog.Recording(t, "capacity/stage.trace")}
	if status := cli.Run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status != cli.ExitUsage || !strings.Contains(stderr.String(), "whylate capacity") {
		t.Errorf("as text: status %d: %s", status, stderr.String())
	}
	stdout.Reset()
	cli.Run(t.Context(), append(args, "--json"), strings.NewReader(""), &stdout, &stderr)
	rep := must.Have(report.ReadJSON(&stdout))(t)
	if want := capacityOf(t, "stage"); rep.Capacity == nil || rep.Capacity.Text != want.Text || len(rep.Capacity.Curve) != 0 {
		t.Errorf("the report has %+v, want %+v", rep.Capacity, want)
	}
}

func capacityOf(t *testing.T, name string, changes ...string) *report.Capacity {
	t.Helper()
	args := []string{"capacity", "--json"}
	for _, change := range changes {
		args = append(args, "--what-if", change)
	}
	var stdout, stderr bytes.Buffer
	if status := cli.Run(t.Context(), append(args, testprog.Recording(t, "capacity/"+name+".trace")), strings.NewReader(""), &stdout, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	c := new(report.Capacity)
	must.Do(t, json.Unmarshal(stdout.Bytes(), c))
	return c
}
