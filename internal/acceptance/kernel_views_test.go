package acceptance_test

import (
	"bytes"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/cli"
	engine "github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
)

// TestKernelLanes: the lanes of slow requests show what their threads did, which processes had their CPUs, and when bytes arrived. The
// waits of the path are those of the lanes.
func TestKernelLanes(t *testing.T) {
	countByState := map[report.ThreadState]int{}
	arrived, otherSpans := 0, 0
	for _, name := range []string{"kernel-hogs-quota", "kernel-mmap"} {
		rep := explainFile(t, testprog.Recording(t, "cases/"+name+".whylate"), "--slowest", "3")
		for i := range rep.Groups {
			for k := range rep.Groups[i].Slowest {
				r := &rep.Groups[i].Slowest[k]
				checkThreads(t, name, r, countByState)
				for _, l := range r.Lanes {
					if l.Goroutine == r.Goroutine && len(l.ArrivalsNS) > 0 && l.ArrivalsNS[0] == r.StartNS {
						arrived++
					}
				}
				for _, c := range r.CPUs {
					otherSpans += len(c.Spans)
					for n, x := range c.Spans {
						if x.Process == report.OwnThreads {
							otherSpans--
						}
						if n > 0 && x.StartNS < c.Spans[n-1].StartNS+c.Spans[n-1].DurationNS {
							t.Errorf("%s: two processes have CPU %d at %d", name, c.CPU, x.StartNS)
						}
					}
				}
			}
		}
	}
	for _, state := range []report.ThreadState{report.ThreadOnCPU, report.ThreadCPUWait, report.ThreadDisk} {
		check.True(t, countByState[state] != 0, "no thread was %s: %v", state, countByState)
	}
	check.True(t, arrived != 0 && otherSpans != 0, "%d requests begin with an arrival, %d spans of other processes", arrived, otherSpans)
}

func checkThreads(t *testing.T, name string, r *report.Request, countByState map[report.ThreadState]int) {
	t.Helper()
	for _, l := range r.Lanes {
		end := r.StartNS
		for _, x := range l.Threads {
			countByState[x.State]++
			check.True(t, x.StartNS >= end && x.DurationNS > 0 && x.StartNS+x.DurationNS <= r.StartNS+r.LatencyNS,
				"%s: a thread's state of %d ns at %d, after one that ends at %d", name, x.DurationNS, x.StartNS, end)
			end = x.StartNS + x.DurationNS
		}
		for _, s := range r.Segments {
			if s.Goroutine != l.Goroutine || s.Cause != report.CauseDisk || s.Joined != nil {
				continue
			}
			isShown := false
			for _, x := range l.Threads {
				isShown = isShown || x.State == report.ThreadDisk && x.StartNS <= s.StartNS && s.StartNS+s.DurationNS <= x.StartNS+x.DurationNS
			}
			check.True(t, isShown, "%s: the lane does not show the page fault of %d ns at %d", name, s.DurationNS, s.StartNS)
		}
	}
}

// TestKernelReread: what reads a recording again shows the same requests as the report, with the kernel's events: the index of
// view, and exports of all requests.
func TestKernelReread(t *testing.T) {
	file := testprog.Recording(t, "cases/kernel-hogs-quota.whylate")
	rep, tr := openRecording(t, file)
	compared := 0
	for i := range rep.Groups {
		for k := range rep.Groups[i].Slowest {
			want := &rep.Groups[i].Slowest[k]
			n, ok := tr.Find(want.ID)
			must.True(t, ok, "request %s is not in the index", want.ID)
			if got := must.Have(tr.Request(t.Context(), int(n)))(t); !reflect.DeepEqual(got, want) {
				t.Errorf("request %s\n%+v\nin the report\n%+v", want.ID, got, want)
			}
			compared++
		}
	}
	cpus := tr.Facts().CPUs
	must.True(t, compared != 0 && len(cpus) == 2, "%d requests compared, CPUs %v", compared, cpus)
	q := &rep.Groups[0].Slowest[0]
	tile := inspect.Tile{From: q.StartNS, To: q.StartNS + q.LatencyNS, Buckets: 4096, Lanes: []inspect.Lane{{Kind: inspect.ThreadLane, ID: q.Goroutine}, {Kind: inspect.CPULane, ID: 0}, {Kind: inspect.CPULane, ID: 1}}}
	strips := must.Have(tr.Strips(t.Context(), tile))(t)
	if got, want := len(strips.Strips[0].Pieces), len(q.Lanes[0].Threads); got != want {
		t.Errorf("the lane of the request's thread has %d pieces, want %d", got, want)
	}
	check.True(t, len(strips.Strips[1].Pieces)+len(strips.Strips[2].Pieces) != 0, "nothing had a CPU")
	tile.From, tile.To, tile.Buckets = 0, rep.Input.DurationNS, 100
	if strips = must.Have(tr.Strips(t.Context(), tile))(t); strips.Strips[1].Sums == nil {
		t.Error("no sums of the CPUs over the whole trace")
	}

	var out, stderr bytes.Buffer
	if status := cli.Run(t.Context(), []string{"export", "--to", "csv", "--rows", "requests", file}, strings.NewReader(""), &out, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, stderr.Bytes())
	}
	sums := csvSums(t, out.String())
	for _, cause := range []report.CauseName{report.CauseCPUWait, report.CauseCPU, report.CauseThrottle} {
		want := int64(0)
		for i := range rep.Groups {
			for _, ns := range rep.Groups[i].HistogramCauses[cause] {
				want += ns
			}
		}
		if got := sums[string(cause)+"_ns"]; got != want || want == 0 {
			t.Errorf("the exported requests have %d ns of %s, the report %d", got, cause, want)
		}
	}
}

// openRecording explains a recording with the kernel's events and opens its index.
func openRecording(t *testing.T, file string) (*report.Report, *inspect.Trace) {
	t.Helper()
	b := must.Have(bundle.Open(file))(t)
	defer b.Close()
	r, _, err := b.Trace()
	must.Do(t, err)
	data := must.Have(io.ReadAll(r))(t)
	events := must.Have(b.KernelEvents())(t)
	x := inspect.NewIndex(inspect.Limits{})
	rep := must.Have(engine.Explain(t.Context(), bytes.NewReader(data), engine.Options{Kernel: bytes.NewReader(events), Index: x}))(t)
	return rep, must.Have(inspect.Open(x, bytes.NewReader(data), int64(len(data))))(t)
}

// TestPeerLanes: the lane of a goroutine that waits for a peer shows each state of the peer that the path has, in the report and in view.
func TestPeerLanes(t *testing.T) {
	file := testprog.Recording(t, "peers/python.whylate")
	rep, tr := openRecording(t, file)
	q := &rep.Groups[0].Slowest[0]
	lane := &q.Lanes[slices.IndexFunc(q.Lanes, func(l report.Lane) bool { return len(l.Peers) > 0 })]
	end := q.StartNS
	for _, x := range lane.Peers {
		check.True(t, x.StartNS >= end && x.StartNS+x.DurationNS <= q.StartNS+q.LatencyNS, "%+v begins before %d", x, end)
		end = x.StartNS + x.DurationNS
	}
	for _, s := range q.Segments {
		isShown := func(x report.PeerSpan) bool {
			return x.Process+": "+x.Text == s.Peer && x.StartNS <= s.StartNS && s.StartNS+s.DurationNS <= x.StartNS+x.DurationNS
		}
		check.True(t, s.Peer == "" || slices.ContainsFunc(lane.Peers, isShown), "the lane does not show %+v", s)
	}
	n, _ := tr.Find(q.ID)
	check.True(t, reflect.DeepEqual(must.Have(tr.Request(t.Context(), int(n)))(t), q), "view shows another request")
	tile := inspect.Tile{From: q.StartNS, To: q.StartNS + q.LatencyNS, Buckets: 4096, Lanes: []inspect.Lane{{Kind: inspect.ThreadLane, ID: lane.Goroutine}}}
	pieces := must.Have(tr.Strips(t.Context(), tile))(t).Strips[0].Pieces
	check.Equal(t, len(pieces), len(lane.Threads)+len(lane.Peers), "pieces of the lane")
}

// csvSums returns the sums of a table's columns of numbers.
func csvSums(t *testing.T, table string) map[string]int64 {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	names, sums := strings.Split(lines[0], ","), map[string]int64{}
	for _, line := range lines[1:] {
		for i, field := range strings.Split(line, ",") {
			if n, err := strconv.ParseInt(field, 10, 64); err == nil && i < len(names) {
				sums[names[i]] += n
			}
		}
	}
	return sums
}
