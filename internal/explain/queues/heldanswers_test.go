package queues

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestHeldAnswers: eight connections have a ticker of 40 ms each for two seconds. The ticks write the answers if they write as
// often as connections had messages. If each tick writes, they are heartbeats; if all connections always have messages, the writes
// prove nothing; if the readers answer themselves, or hand most messages over, nothing is held.
func TestHeldAnswers(t *testing.T) {
	const period, connections, periods = 40e6, 8, 50
	for _, c := range []struct {
		name             string
		messageEvery     float64 // in periods of a connection, on average
		writeEvery       float64
		answered         int64
		isFound, hasIdle bool
	}{
		{"a tick writes what the messages left", 3, 3, 0, true, true},
		{"a heartbeat", 3, 1, 0, false, false},
		{"writes of something rare", 1, 3, 0, false, false},
		{"messages in all periods", 1, 1, 0, true, false},
		{"answered at once", 3, 3, 1000, false, false},
	} {
		symbols := tracefmt.NewSymbols()
		stack := symbols.AddStack(tracefmt.FrameText{Func: "net.(*netFD).Write"}, tracefmt.FrameText{Func: "main.flush", Line: 70})
		cause.NewCallerFinder(symbols, modules.New(modules.Options{})).ExamineStacks()
		syms := symbols.Snapshot()
		sites := cause.NewSites(&syms)
		messages := &messageSum{answered: c.answered}
		ticks := &tickSum{site: sites.SiteOf(stack)}
		random := rand.New(rand.NewPCG(1, 2))
		for g := range uint64(connections) {
			for n := range periods {
				chance := random.Float64()
				if chance*c.messageEvery < 1 {
					messages.silent = append(messages.silent, endMark{g, int64(n)*period + int64(g)*1e6})
				}
				if chance*c.writeEvery < 1 {
					ticks.ticks = append(ticks.ticks, endMark{100 + g, int64(n+1)*period + int64(g)*1e6})
					ticks.writes++
				}
			}
		}
		messages.messages = int64(len(messages.silent)) + messages.answered
		sum := &Sum{sliceNS: periods * period, workers: []*workerSum{{messages: map[path.GroupID]*messageSum{1: messages}, ticks: map[path.GroupID]*tickSum{2: ticks}}}}
		held := sum.HeldAnswers(&spell.Speller{Syms: &syms, Sites: sites, Modules: modules.New(modules.Options{})}, 1)
		if (held != nil) != c.isFound || held != nil && held.HasIdle != c.hasIdle {
			t.Errorf("%s: %+v", c.name, held)
		} else if held != nil && (held.WriteSite.Func != "main.flush" || held.PeriodNS < period*9/10 || held.PeriodNS > period*11/10) {
			t.Errorf("%s: site %v, period %d", c.name, held.WriteSite, held.PeriodNS)
		}
	}
}
