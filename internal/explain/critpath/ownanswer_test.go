package critpath

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// Stacks of a process that calls its own server: goroutine 1 is the request, goroutine 2 reads from its connection,
// goroutine 3 answers.
var (
	header       = []string{"runtime.selectgo", "google.golang.org/grpc/internal/transport.(*ClientStream).waitOnHeader", "main.gateway"}
	readLoop     = []string{"internal/poll.(*FD).Read", "net.(*conn).Read", "google.golang.org/grpc/internal/transport.(*http2Client).reader"}
	deliverStack = []string{"runtime.chansend", "google.golang.org/grpc/internal/transport.(*http2Client).operateHeaders"}
)

type requestKey struct {
	g    uint64
	from int64
}

var answerCases = []struct {
	name    string
	build   func(b *tracetext.Builder)
	answers map[requestKey][]Answer
	want    string
}{
	{"the path continues in the answer, although the connection delivers for others during the wait", sharedConnection, map[requestKey][]Answer{{1, 100}: {{3, 130, 380}}}, `
100-120 g1 cpu runtime.selectgo
120-130 g2 network internal/poll.(*FD).Read <select runtime.selectgo
130-140 g3 cpu sync.(*Mutex).Lock <peer internal/poll.(*FD).Read <select runtime.selectgo
140-200 g4 sleep time.Sleep <lock sync.(*Mutex).Lock <peer internal/poll.(*FD).Read <select runtime.selectgo
200-210 g4 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock <peer internal/poll.(*FD).Read <select runtime.selectgo
210-220 g3 runnable sync.(*Mutex).Lock <peer internal/poll.(*FD).Read <select runtime.selectgo
220-380 g3 cpu main.end <peer internal/poll.(*FD).Read <select runtime.selectgo
380-400 g2 network internal/poll.(*FD).Read <select runtime.selectgo
400-410 g2 runnable internal/poll.(*FD).Read <select runtime.selectgo
410-420 g2 cpu runtime.chansend <select runtime.selectgo
420-430 g1 runnable runtime.selectgo
430-500 g1 cpu main.end
`},
	{"an answer that began before the wait counts only within the wait", sharedConnection, map[requestKey][]Answer{{1, 100}: {{3, 90, 420}}}, `
100-120 g1 cpu runtime.selectgo
120-140 g3 cpu sync.(*Mutex).Lock <peer internal/poll.(*FD).Read <select runtime.selectgo
140-200 g4 sleep time.Sleep <lock sync.(*Mutex).Lock <peer internal/poll.(*FD).Read <select runtime.selectgo
200-210 g4 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock <peer internal/poll.(*FD).Read <select runtime.selectgo
210-220 g3 runnable sync.(*Mutex).Lock <peer internal/poll.(*FD).Read <select runtime.selectgo
220-380 g3 cpu main.end <peer internal/poll.(*FD).Read <select runtime.selectgo
380-400 g3 chan main.end <peer internal/poll.(*FD).Read <select runtime.selectgo
400-410 g2 runnable internal/poll.(*FD).Read <select runtime.selectgo
410-420 g2 cpu runtime.chansend <select runtime.selectgo
420-430 g1 runnable runtime.selectgo
430-500 g1 cpu main.end
`},
	{"if the answering goroutine is unknown, the wait itself is the step", sharedConnection, map[requestKey][]Answer{{1, 100}: {{77, 130, 380}}}, `
100-120 g1 cpu runtime.selectgo
120-250 g2 network internal/poll.(*FD).Read <select runtime.selectgo
250-260 g2 runnable internal/poll.(*FD).Read <select runtime.selectgo
260-270 g2 cpu internal/poll.(*FD).Read <select runtime.selectgo
270-380 g2 network internal/poll.(*FD).Read <select runtime.selectgo
380-400 g2 network internal/poll.(*FD).Read <select runtime.selectgo
400-410 g2 runnable internal/poll.(*FD).Read <select runtime.selectgo
410-420 g2 cpu runtime.chansend <select runtime.selectgo
420-430 g1 runnable runtime.selectgo
430-500 g1 cpu main.end
`},
	{"an answer that waits for another one", func(b *tracetext.Builder) {
		m, n, o := b.Thread(1), b.Thread(), b.Thread()
		m.Block(120, "network", readLoop...)
		n.HasRun(3)
		n.Block(150, "network", readLoop...)
		o.HasRun(5)
		o.Block(250, "sleep", "time.Sleep", "main.third")
		m.Unblock(300, 5)
		o.Start(300, 5)
		o.Block(310, "forever", "main.end")
		m.Unblock(330, 3)
		n.Start(330, 3)
		n.Block(370, "forever", "main.end")
		m.Unblock(400, 1)
		m.Start(400, 1)
		m.Block(500, "forever", "main.end")
	}, map[requestKey][]Answer{{1, 100}: {{3, 130, 370}}, {3, 130}: {{5, 160, 310}}}, `
100-120 g1 cpu internal/poll.(*FD).Read
120-130 g1 network internal/poll.(*FD).Read
130-150 g3 cpu internal/poll.(*FD).Read <peer internal/poll.(*FD).Read
150-160 g3 network internal/poll.(*FD).Read <peer internal/poll.(*FD).Read
160-250 g5 cpu time.Sleep <peer internal/poll.(*FD).Read <peer internal/poll.(*FD).Read
250-300 g5 sleep time.Sleep <peer internal/poll.(*FD).Read <peer internal/poll.(*FD).Read
300-310 g5 cpu main.end <peer internal/poll.(*FD).Read <peer internal/poll.(*FD).Read
310-330 g3 network internal/poll.(*FD).Read <peer internal/poll.(*FD).Read
330-370 g3 cpu main.end <peer internal/poll.(*FD).Read
370-400 g1 network internal/poll.(*FD).Read
400-500 g1 cpu main.end
`},
}

// sharedConnection builds a request whose connection's reader is woken for another request during the answer. The
// answering goroutine waits for a lock.
func sharedConnection(b *tracetext.Builder) {
	m, n, o, r := b.Thread(1), b.Thread(3), b.Thread(4), b.Thread(2)
	r.Block(20, "network", readLoop...)
	o.Block(110, "sleep", "time.Sleep", "main.hold")
	m.Block(120, "select", header...)
	n.Block(140, "sync", lockStack...)
	m.Unblock(200, 4)
	o.Start(200, 4)
	o.Unblock(210, 3, unlockStack...)
	o.Block(215, "forever", "main.end")
	n.Start(220, 3)
	m.Unblock(250, 2)
	r.Start(260, 2)
	r.Block(270, "network", readLoop...)
	n.Block(380, "forever", "main.end")
	m.Unblock(400, 2)
	r.Start(410, 2)
	r.Unblock(420, 1, deliverStack...)
	r.Block(425, "network", readLoop...)
	m.Start(430, 1)
	m.Block(500, "forever", "main.end")
}

// answersAfterOrigin returns the answers of a test case, moved to the window's clock.
func answersAfterOrigin(answers map[requestKey][]Answer) func(g uint64, start int64) []Answer {
	return func(g uint64, start int64) (out []Answer) {
		for _, a := range answers[requestKey{g, start - tracetext.Origin}] {
			out = append(out, Answer{a.G, a.Start + tracetext.Origin, a.End + tracetext.Origin})
		}
		return out
	}
}

// TestAnswers: a wait for a request of the same process is replaced by the steps of that request, each exactly once,
// and the graph agrees. It fails if a path ends at the socket, if a path is cut where the reader was woken for
// others, or if the graph takes the answer's waits for other requests' work.
func TestAnswers(t *testing.T) {
	const from, to = 100 + tracetext.Origin, 500 + tracetext.Origin
	for _, c := range answerCases {
		t.Run(c.name, func(t *testing.T) {
			win, syms := timelinetest.BuildWindow(t, c.build)
			w := New(win, syms)
			w.AnswersOf = answersAfterOrigin(c.answers)
			steps := w.Walk(1, from, to)
			checkPartition(t, steps, from, to)
			check.Equal(t, "\n"+spellSteps(w, syms, steps), c.want, "the walk")
			g := w.Graph(1, from, to)
			must.True(t, g != nil && g.isConsistent(make([]int64, len(g.Nodes))), "there is no consistent graph")
			// Work for the request is not OtherWork: more workers would not shorten it.
			for _, s := range g.Steps {
				check.False(t, s.G == 3 && s.OtherWork,
					"in the graph, goroutine 3 does other requests' work from %d to %d", s.Start-tracetext.Origin, s.End-tracetext.Origin)
			}
		})
	}
}

// TestAnswersInACircle: AnswersOf may be wrong. It fails if a walk or a graph does not end.
func TestAnswersInACircle(t *testing.T) {
	const from, to = 100 + tracetext.Origin, 500 + tracetext.Origin
	for _, answers := range []map[requestKey][]Answer{
		{{1, 100}: {{2, 100, 500}}, {2, 100}: {{1, 100, 500}}},
		{{1, 100}: {{1, 100, 500}}},
		{{1, 100}: {{2, 0, 900}, {3, 0, 900}}, {2, 0}: {{3, 0, 900}}, {3, 0}: {{2, 0, 900}, {1, 0, 900}}, {1, 0}: {{3, 0, 900}}},
	} {
		win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
			m.Block(110, "network", readLoop...)
			n.Block(120, "network", readLoop...)
			o.Block(120, "network", readLoop...)
			m.Unblock(480, 1)
			m.Unblock(490, 2)
			m.Unblock(490, 3)
			m.Start(490, 1)
			m.Block(500, "forever", "main.end")
		})
		w := New(win, syms)
		w.AnswersOf = answersAfterOrigin(answers)
		checkPartition(t, w.Walk(1, from, to), from, to)
		check.False(t, w.Truncated, "%v: truncated", answers)
		w.Graph(1, from, to)
	}
}
