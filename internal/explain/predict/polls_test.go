package predict

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// modelOfPauses builds the model of requests that pause some number of times, 1 ms each, with something between the pauses.
func modelOfPauses(t *testing.T, counts []int, betweenPauses func(m, n, o *tracetext.Thread, time int64)) *Model {
	t.Helper()
	s := new(Sample)
	var m *Model
	for i, count := range counts {
		end := int64(200+1100*count) * us
		win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			m, n, o := b.Thread(1), b.Thread(), b.Thread(2)
			o.Block(50*us, "chan receive", recv("main.reader")...)
			time := int64(200 * us)
			for range count {
				m.Block(time, "sleep", "time.Sleep", "main.wait", "main.handle")
				n.Unblock(time+1000*us, 1)
				m.Start(time+1000*us, 1)
				betweenPauses(m, n, o, time+1000*us)
				time += 1100 * us
			}
			m.Block(time, "forever", "main.end", "main.handle")
		})
		from, to := int64(100*us+tracetext.Origin), end+tracetext.Origin
		g := NewBuilder(path.New(win, syms, path.Options{})).Build(1, from, to)
		s.Count(from, to, 1, 1)
		g.Start += int64(i) // different starts, as the requests of one trace
		s.Add(g)
		if m == nil {
			m = NewModel(syms, settled, end, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
		}
	}
	m.AddGroup("g", s, report.Latency{})
	return m
}

// TestPolls: if a request only checks something between its pauses, and pauses until something arrives, only a half
// of the last pause is saved on average. It fails if another pause is shortened, or if pauses with other work between them are taken for a poll.
func TestPolls(t *testing.T) {
	onlyPoll := func(_, _, _ *tracetext.Thread, _ int64) {}
	callPeer := func(m, n, o *tracetext.Thread, time int64) {
		m.Block(time+10*us, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", "main.try", "main.handle")
		n.Unblock(time+60*us, 1)
		m.Start(time+60*us, 1)
	}
	handOver := func(m, n, o *tracetext.Thread, time int64) {
		m.Unblock(time+10*us, 2, "runtime.chansend1", "main.send", "main.handle")
		o.Start(time+20*us, 2)
		o.Block(time+30*us, "chan receive", recv("main.reader")...)
	}
	for _, c := range []struct {
		name          string
		counts        []int
		betweenPauses func(m, n, o *tracetext.Thread, time int64)
		halfPauses    int64 // that half of the sleep halves, for the median request
		polls         bool
	}{
		{"a poll", []int{38, 39, 40, 41, 42}, onlyPoll, 1, true},
		{"a retry that calls a peer", []int{38, 39, 40, 41, 42}, callPeer, 80, false},
		{"a loop that hands work over", []int{38, 39, 40, 41, 42}, handOver, 80, false},
		{"a loop that pauses a fixed number of times", []int{40, 40, 40, 40, 40}, onlyPoll, 80, false},
		{"a few steps", []int{2, 2, 3, 3, 4}, onlyPoll, 6, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := modelOfPauses(t, c.counts, c.betweenPauses)
			half := []Change{Halve("sleep", "main.wait")}
			p := m.WhatIf("g", half)
			must.True(t, p != nil, "there is no prediction")
			middle := int64(100+1100*c.counts[2]) * us
			if got, want := middle-p.P50NS.Est, c.halfPauses*250*us; got < want-want/50-50*us || got > want+want/50 {
				t.Errorf("half of the sleep saves %d us of %d, want %d", got/us, middle/us, want/us)
			}
			pauses, number := m.PausesOf("g", half), 0.0
			for _, n := range c.counts {
				number += float64(n) / float64(len(c.counts))
			}
			check.True(t, pauses != nil && pauses.IsPoll == c.polls && pauses.EachNS == 1000*us && pauses.Number == number,
				"it pauses as %+v, want %g times, a poll: %t", pauses, number, c.polls)
		})
	}
}

// TestPollsTooLarge: a chain, which a request becomes if its graph is too large, shows polls as well.
func TestPollsTooLarge(t *testing.T) {
	segs := []cause.Segment{}
	for i := range int64(2000) {
		segs = append(segs, cause.Segment{Start: 1100 * i, End: 1100*i + 1000, Code: cause.Code(cause.Sleep), Site: 1}, cause.Segment{Start: 1100*i + 1000, End: 1100 * (i + 1), Code: cause.Code(cause.CPU), Site: 2})
	}
	win, syms := timelinetest.BuildWindow(t, graphs[0].build)
	g := NewBuilder(path.New(win, syms, path.Options{})).Chain(0, 0, 2200*1000, segs, nil, nil)
	held, last := int64(0), int64(0)
	for i := range g.intervals {
		if p := &g.intervals[i]; p.hasNextPause {
			held += p.ns
		} else if p.sequence > 0 {
			last += p.ns
		}
	}
	check.True(t, len(g.pauseSequences) == 1 && g.pauseSequences[0].pauses == 2000 && held == 1999*1000 && last == 1000,
		"rows %+v, %d held, %d not", g.pauseSequences, held, last)
}

// TestFloor: a floor ends pauses at one time since the request's start, although they begin at others; a pause of one length does not.
func TestFloor(t *testing.T) {
	for _, c := range []struct {
		name                      string
		requests, startNS, stepNS int64
		lengthNS, endNS, floorNS  int64
	}{
		{"a floor", 20, 30e6, 2e6, 0, 250e6, 250e6},
		{"a pause", 20, 30e6, 2e6, 200e6, 0, 0},
		{"a pause before all work", 20, 1e6, 1e3, 200e6, 0, 0},
		{"few pauses", 4, 30e6, 2e6, 0, 250e6, 0},
	} {
		var starts, ends []int64
		for i := range c.requests {
			starts = append(starts, c.startNS+i*c.stepNS)
			end := c.endNS + i%3*50e3 // timers fire late
			if c.lengthNS > 0 {
				end += starts[i] + c.lengthNS
			}
			ends = append(ends, end)
		}
		floor := floorOf(starts, ends)
		check.True(t, floor/1e6 == c.floorNS/1e6, "%s: %d ns", c.name, floor)
	}
}
