package explain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A movedClock changes a trace as if another machine had recorded it: its monotonic clock and its wall clock differ by some ns, and
// its clocks are faster by some ppm.
type movedClock struct{ mono, wall, ppm int64 }

// rewrite returns the changed trace, and the time of the first clock snapshot on its monotonic clock.
func (c movedClock) rewrite(t *testing.T, trace []byte) (moved []byte, snapshot int64) {
	replace := func(old, changed []byte) {
		must.True(t, len(old) == len(changed) && bytes.Count(trace, old) == 1, "cannot replace %x by %x", old, changed)
		trace = bytes.Replace(trace, old, changed, 1)
	}
	numbers := func(list ...uint64) (out []byte) {
		for _, n := range list {
			out = binary.AppendUvarint(out, n)
		}
		return out
	}
	trace = slices.Clone(trace)
	reader := must.Have(tracefmt.NewReader(bytes.NewReader(trace), tracefmt.Options{}))(t)
	for {
		g, err := reader.Next()
		if err == io.EOF {
			return trace, snapshot
		}
		must.Do(t, err)
		s := g.Snapshot
		mono, wall := int64(s.Mono)+c.mono, int64(s.UnixNsec)+c.wall
		if snapshot == 0 {
			snapshot = mono
		} else { // the time since the first snapshot is longer by this clock
			mono += (mono - snapshot) * c.ppm / 1e6
		}
		replace(numbers(s.Mono, s.UnixSec, s.UnixNsec), numbers(uint64(mono), s.UnixSec, uint64(wall)))
		// A unit of the trace's clock is longer, so there are fewer in a second.
		freq := append([]byte{byte(tracefmt.EvFrequency)}, numbers(g.Freq)...)
		trace = bytes.ReplaceAll(trace, freq, append([]byte{byte(tracefmt.EvFrequency)}, numbers(uint64(int64(g.Freq)-int64(g.Freq)*c.ppm/1e6))...))
	}
}

// TestMovedClocks: between recordings of machines whose clocks differ by 30 ms and 100 ppm, the same calls are joined as on one machine.
// The intervals of the offset contain the true one.
func TestMovedClocks(t *testing.T) {
	traces := make(map[string][]byte)
	for _, name := range []string{"audit", "stock"} {
		traces[name] = must.Have(os.ReadFile(testprog.Recording(t, "shop/"+name+".trace")))(t)
	}
	explain := func(traces map[string][]byte) (caller, callee *Service, rep *report.Report) {
		var list []*Service
		for _, name := range []string{"audit", "stock"} {
			list = append(list, &Service{Options: Options{Name: name, Reopen: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(traces[name])), nil }}})
		}
		rep = must.Have(ExplainServices(t.Context(), list))(t)
		return list[0], list[1], rep
	}
	pairs := func(s *Service) (out []string) {
		for _, c := range s.remotes.calls {
			out = append(out, fmt.Sprint(c.G, c.RemoteAnswer.G, len(c.RemoteAnswer.Parts), c.RemoteAnswer.Group))
		}
		slices.Sort(out)
		return out
	}
	caller, _, _ := explain(traces)
	want := pairs(caller)
	for _, moved := range []string{"audit", "stock"} {
		for _, c := range []movedClock{{30e6, 0, 100}, {1e12, 30e6, 100}, {1e12, -30e6, 0}, {-1e12, 1e6, -100}} {
			changed := map[string][]byte{"audit": traces["audit"], "stock": traces["stock"]}
			var snapshot int64
			changed[moved], snapshot = c.rewrite(t, traces[moved])
			caller, callee, rep := explain(changed)
			if got := pairs(caller); !slices.Equal(got, want) {
				t.Errorf("%s moved by %+v: the pairs are %q, want %q", moved, c, got, want)
				continue
			}
			// The true monotonic time of a time of a trace.
			truth := func(s *Service, name string, ns int64) int64 {
				mono := ns + s.preview.clock.Mono
				if name != moved {
					return mono
				}
				return snapshot - c.mono + (mono-snapshot)*1e6/(1e6+c.ppm)
			}
			link := caller.remotes.links[callee.server]
			for _, at := range []int64{callee.server.From, callee.server.To} {
				_, slack := link.OffsetAt(at)
				d := truth(caller, "audit", link.ToClient(at)) - truth(callee, "stock", at)
				check.True(t, max(d, -d) <= slack && slack <= 500e3, "%s moved by %+v: the offset is wrong by %d ns, want less than %d", moved, c, d, slack)
			}
			clock := rep.Services[1].Clock
			d := truth(callee, "stock", callee.server.From) - truth(caller, "audit", caller.server.From)
			check.True(t, rep.Services[1].Name == "stock" && d >= clock.LowNS && d <= clock.HighNS,
				"%s moved by %+v: stock began %d ns after audit, want from %d to %d", moved, c, d, clock.LowNS, clock.HighNS)
			ways := 0
			for _, g := range rep.Groups {
				for _, q := range g.Slowest {
					for _, s := range q.Segments {
						if s.WayTo != "" && s.ClockErrorNS > 0 {
							ways++
						}
					}
				}
			}
			check.True(t, ways != 0, "%s moved by %+v: no segment on the way to stock has the error of the clocks", moved, c)
		}
	}
}
