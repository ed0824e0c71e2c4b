package explain

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// exchangeTrace builds a trace of a program whose main goroutine waits n times for another goroutine, which computes for
// different times in three places.
func exchangeTrace(t *testing.T, n int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	b := tracetext.New(26)
	m, o := b.Thread(), b.Thread()
	m.HasRun(1)
	m.Create(1000, 20, "main.worker", "main.main:10")
	o.Start(1010, 20)
	o.Block(1020, "chan receive", "runtime.chanrecv1", "main.worker:20")
	clock, place := int64(2000), "main.first:21"
	for i := range n {
		if i%100 == 0 {
			place = []string{"main.first:21", "main.second:22", "main.third:23"}[r.IntN(3)]
		}
		m.Unblock(clock, 20, "runtime.chansend1", "main.main:8")
		m.Block(clock+10, "chan receive", "runtime.chanrecv1", "main.main:9")
		o.Start(clock+20, 20)
		clock += 30 + int64(r.ExpFloat64()*500)
		o.Syscall(clock, "syscall.write", place, "main.worker:20")
		clock += 100 + r.Int64N(300)
		o.SyscallEnd(clock)
		o.Unblock(clock+30, 1, "runtime.chansend1", "main.worker:24")
		o.Block(clock+40, "chan receive", "runtime.chanrecv1", "main.worker:20")
		m.Start(clock+50, 1)
		clock += 100
	}
	return must.Have(b.Bytes())(t)
}

// TestSampleOfRun: of a run with very many pieces only a sample is walked. The shares of its causes are those of all pieces within
// their errors, their times add up to the run, and neither depends on the number of workers.
func TestSampleOfRun(t *testing.T) {
	data := exchangeTrace(t, 90_000)
	runOf := func(exact bool, workers int) report.Group {
		rep := must.Have(Explain(context.Background(), bytes.NewReader(data), Options{Exact: exact, Workers: workers}))(t)
		must.Do(t, rep.CheckValid())
		must.Equal(t, len(rep.Groups), 1, "groups")
		return rep.Groups[0]
	}
	exact, sampled, ofOneWorker := runOf(true, 2), runOf(false, 2), runOf(false, 1)
	type place struct {
		cause report.CauseName
		line  int
	}
	causesOf := func(g *report.Group) map[place]report.Cause {
		out := make(map[place]report.Cause)
		for _, c := range g.Bands[0].Causes {
			out[place{c.Cause, c.Site.Line}] = c
		}
		return out
	}
	want, oneWorkerCauses := causesOf(&exact), causesOf(&ofOneWorker)
	totalNS := int64(0)
	for p, c := range causesOf(&sampled) {
		totalNS += c.TotalNS
		check.True(t, c.ShareError > 0 && c.ShareError <= 0.03 && math.Abs(c.Share-want[p].Share) <= c.ShareError,
			"%v: %.4f ± %.4f of the run, of all pieces %.4f", p, c.Share, c.ShareError, want[p].Share)
		check.True(t, want[p].ShareError == 0, "%v: an error of %g where all pieces were walked", p, want[p].ShareError)
		check.True(t, oneWorkerCauses[p].TotalNS == c.TotalNS && oneWorkerCauses[p].ShareError == c.ShareError,
			"%v: %d ± %g, by one worker %d ± %g", p, c.TotalNS, c.ShareError, oneWorkerCauses[p].TotalNS, oneWorkerCauses[p].ShareError)
	}
	check.True(t, totalNS == sampled.TotalNS && sampled.TotalNS == exact.TotalNS,
		"causes of %d ns in a run of %d ns, %d ns if all pieces are walked", totalNS, sampled.TotalNS, exact.TotalNS)
}
