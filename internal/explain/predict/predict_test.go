package predict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

const us = 1000

func recv(caller string) []string { return []string{"runtime.chanrecv1", caller} }

// A whatIf is a prediction for the request of goroutine 1 from 100 to the end, in us. The expected values were computed by
// hand.
type whatIf struct {
	changes        []string
	est, low, high int64 // us
}

var graphs = []struct {
	name        string
	to          int64 // us
	build       func(b *tracetext.Builder)
	predictions []whatIf
}{
	{"plain sleep", 10400, func(b *tracetext.Builder) {
		// 100 computing, 10 ms asleep, 200 computing.
		m, n := b.Thread(1), b.Thread()
		m.Block(200*us, "sleep", "time.Sleep", "main.nap", "main.handle")
		n.Unblock(10200*us, 1)
		m.Start(10200*us, 1)
		m.Block(10400*us, "forever", "main.end", "main.handle")
	}, []whatIf{
		{[]string{"sleep@nap=50%"}, 5300, 5300, 5300},
		{[]string{"sleep@nap=gone"}, 300, 300, 300},
		{[]string{"nap=2ms"}, 300 + 2400, 300 + 2000, 300 + 3100},
		{[]string{"nap=20ms"}, 10300, 10300, 10300},
		{[]string{"nap=9500us"}, 300 + 9900, 300 + 9500, 10300},
		{[]string{"sleep@nap=50%", "sleep@main.nap=20%"}, 2300, 2300, 2300}, // overlapping: the smaller
	}},
	{"two siblings: the next-latest decides", 11000, func(b *tracetext.Builder) {
		// Both start at 200; one sleeps until 10000, the other until 7000.
		m, n, o := b.Thread(1), b.Thread(), b.Thread()
		m.Create(200*us, 2, "main.a", "main.fan")
		m.Create(200*us, 3, "main.b", "main.fan")
		m.Block(300*us, "sync", "sync.(*WaitGroup).Wait", "main.fan")
		n.Start(300*us, 2)
		n.Block(300*us, "sleep", "time.Sleep", "main.long", "main.a")
		o.Start(300*us, 3)
		o.Block(300*us, "sleep", "time.Sleep", "main.short", "main.b")
		o.Unblock(7000*us, 3)
		o.Start(7000*us, 3)
		o.Destroy(7000 * us)
		n.Unblock(10000*us, 2)
		n.Start(10000*us, 2)
		n.Unblock(10000*us, 1, "sync.(*WaitGroup).Done", "main.a")
		n.Destroy(10000 * us)
		m.Start(10000*us, 1)
		m.Block(11000*us, "forever", "main.end")
	}, []whatIf{
		{[]string{"long=gone"}, 6900 + 1000, 6900 + 1000, 6900 + 1000},
		{[]string{"long=80%"}, 200 + 7760 + 1000, 8960, 8960},
		{[]string{"long=gone", "short=gone"}, 1200, 1200, 1200},
		{[]string{"short=gone"}, 10900, 10900, 10900},
	}},
	{"the waiter's own work beside a goroutine's", 12000, func(b *tracetext.Builder) {
		// It computes from 200 to 8000 while its goroutine sleeps until 10000.
		m, n := b.Thread(1), b.Thread()
		m.Create(200*us, 2, "main.a", "main.fork")
		n.Start(200*us, 2)
		n.Block(200*us, "sleep", "time.Sleep", "main.nap", "main.a")
		m.Block(8000*us, "chan receive", recv("main.compute")...)
		n.Unblock(10000*us, 2)
		n.Start(10000*us, 2)
		n.Unblock(10000*us, 1, "runtime.chansend1", "main.a")
		n.Destroy(10000 * us)
		m.Start(10000*us, 1)
		m.Block(12000*us, "forever", "main.end")
	}, []whatIf{
		{[]string{"nap=gone"}, 7900 + 2000, 9900, 9900},         // not 6000 less than nothing: its own work remains
		{[]string{"compute=gone"}, 11900, 11900, 11900},         // the sleep was longer anyway
		{[]string{"nap=50%", "compute=gone"}, 7000, 7000, 7000}, // 100 + 4900 + 2000
	}},
	{"nested joins", 12000, func(b *tracetext.Builder) {
		// 1 waits for 2, which waits for 3 and 4.
		m, n, o, q := b.Thread(1), b.Thread(), b.Thread(), b.Thread()
		m.Create(200*us, 2, "main.two", "main.handle")
		m.Block(200*us, "chan receive", recv("main.handle")...)
		n.Start(200*us, 2)
		n.Create(300*us, 3, "main.three", "main.two")
		n.Create(300*us, 4, "main.four", "main.two")
		n.Block(300*us, "sync", "sync.(*WaitGroup).Wait", "main.two")
		o.Start(300*us, 3)
		o.Block(300*us, "sleep", "time.Sleep", "main.long", "main.three")
		q.Start(300*us, 4)
		q.Block(300*us, "sleep", "time.Sleep", "main.short", "main.four")
		q.Unblock(5300*us, 4)
		q.Start(5300*us, 4)
		q.Destroy(5300 * us)
		o.Unblock(10300*us, 3)
		o.Start(10300*us, 3)
		o.Unblock(10300*us, 2, "sync.(*WaitGroup).Done", "main.three")
		o.Destroy(10300 * us)
		n.Start(10300*us, 2)
		n.Unblock(11000*us, 1, "runtime.chansend1", "main.two")
		n.Destroy(11000 * us)
		m.Start(11000*us, 1)
		m.Block(12000*us, "forever", "main.end")
	}, []whatIf{
		{[]string{"long=gone"}, 200 + 5000 + 700 + 1000, 6900, 6900},
		{[]string{"sleep@main.handle=gone"}, 200 + 700 + 1000, 1900, 1900}, // all sleeps for which it waits there
		{[]string{"sleep@main.two=gone"}, 1900, 1900, 1900},
		{[]string{"sleep@main.*=gone"}, 1900, 1900, 1900}, // of a package
		{[]string{"sleep@main.long from main.handle=gone"}, 6900, 6900, 6900},
		{[]string{"long=70%"}, 200 + 7000 + 700 + 1000, 8900, 8900},
	}},
	{"the wake-up goes with the wait", 4000, func(b *tracetext.Builder) {
		m := b.Thread(1)
		m.Block(200*us, "sleep", "time.Sleep", "main.nap", "main.a")
		m.Unblock(3000*us, 1)
		m.Start(3500*us, 1)
		m.Block(4000*us, "forever", "main.end")
	}, []whatIf{
		{[]string{"sleep@nap=gone"}, 100 + 500, 600, 100 + 500 + 500},
	}},
	{"lock chain: others hold it, the site is theirs as well", 21000, func(b *tracetext.Builder) {
		// 2 has the lock from 0 to 4000, 3 from then to 12000, 1 to 20000, each
		// asleep with it.
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		n.Block(50*us, "sleep", "time.Sleep", "main.hold")
		o.Block(60*us, "sync", "sync.(*Mutex).Lock", "main.lock")
		m.Block(1000*us, "sync", "sync.(*Mutex).Lock", "main.lock")
		n.Unblock(4000*us, 2)
		n.Start(4000*us, 2)
		n.Unblock(4000*us, 3, "sync.(*Mutex).Unlock", "main.unlock")
		n.Block(4000*us, "forever", "main.end")
		o.Start(4000*us, 3)
		o.Block(4000*us, "sleep", "time.Sleep", "main.hold")
		o.Unblock(12000*us, 3)
		o.Start(12000*us, 3)
		o.Unblock(12000*us, 1, "sync.(*Mutex).Unlock", "main.unlock")
		o.Block(12000*us, "forever", "main.end")
		m.Start(12000*us, 1)
		m.Block(12000*us, "sleep", "time.Sleep", "main.hold")
		m.Unblock(20000*us, 1)
		n.Start(20000*us, 1)
		n.Block(21000*us, "forever", "main.end")
	}, []whatIf{
		// Own 8000, others 3000 and 8000; by arrivals at random rho is 11/19, so
		// that half the service leaves 0.25*(8/19)/(1-11/38) of the queue.
		{[]string{"hold=50%"}, -1, 900 + 4000 + 1000 + 1630, 900 + 9500 + 1000},
		{[]string{"hold=gone"}, 1900, 1900, 1900},
		{[]string{"queue@hold=gone"}, 9900, 9900, 9900}, // its own service remains
		{[]string{"queue@hold=50%"}, 15400, 15400, 15400},
	}},
	{"lock chain: a small share of the holders' work", 21000, func(b *tracetext.Builder) {
		// As above, but in the last tenth of the time with the lock they sleep at another place.
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		n.Block(50*us, "sleep", "time.Sleep", "main.hold")
		o.Block(60*us, "sync", "sync.(*Mutex).Lock", "main.lock")
		m.Block(1000*us, "sync", "sync.(*Mutex).Lock", "main.lock")
		finishTurn := func(th *tracetext.Thread, g uint64, time, end int64) {
			th.Unblock(time*us, g)
			th.Start(time*us, g)
			th.Block(time*us, "sleep", "time.Sleep", "main.note")
			th.Unblock(end*us, g)
			th.Start(end*us, g)
		}
		finishTurn(n, 2, 3700, 4000)
		n.Unblock(4000*us, 3, "sync.(*Mutex).Unlock", "main.unlock")
		n.Block(4000*us, "forever", "main.end")
		o.Start(4000*us, 3)
		o.Block(4000*us, "sleep", "time.Sleep", "main.hold")
		finishTurn(o, 3, 11200, 12000)
		o.Unblock(12000*us, 1, "sync.(*Mutex).Unlock", "main.unlock")
		o.Block(12000*us, "forever", "main.end")
		m.Start(12000*us, 1)
		m.Block(12000*us, "sleep", "time.Sleep", "main.hold")
		finishTurn(m, 1, 19200, 20000)
		m.Block(21000*us, "forever", "main.end")
	}, []whatIf{
		// Half of a tenth: services of 0.95 leave 0.95*0.95*(8/19)/(1-0.95*11/19)
		// of the queue. Not fewer than services of 0.9, which leave 0.712 of it.
		{[]string{"note=50%"}, -1, 900 + 9289 + 7600 + 1000, 900 + 10450 + 7600 + 1000},
		{[]string{"note=gone"}, -1, 900 + 7833 + 7200 + 1000, 900 + 9900 + 7200 + 1000},
	}},
	{"pipeline: stages that worked for others before", 20000, func(b *tracetext.Builder) {
		// 2 takes the job at 2000, works 3000, hands it to 3, which works 10000.
		m, n, o := b.Thread(1), b.Thread(), b.Thread()
		b.Waiting(2)
		b.Waiting(3)
		m.Unblock(2000*us, 2, "runtime.chansend1", "main.submit")
		m.Block(2000*us, "chan receive", recv("main.submit")...)
		n.Start(2000*us, 2)
		n.Unblock(5000*us, 3, "runtime.chansend1", "main.parse")
		n.Block(5000*us, "chan receive", recv("main.parse")...)
		o.Start(5000*us, 3)
		o.Block(5000*us, "sleep", "time.Sleep", "main.enrich")
		o.Unblock(15000*us, 3)
		o.Start(15000*us, 3)
		o.Unblock(15000*us, 1, "runtime.chansend1", "main.enrich")
		o.Block(15000*us, "chan receive", recv("main.enrich")...)
		m.Start(15000*us, 1)
		m.Block(20000*us, "forever", "main.end")
	}, []whatIf{
		{[]string{"main.enrich=gone"}, 9900, 9900, 9900},
		{[]string{"main.parse=gone", "main.enrich=50%"}, 1900 + 5000 + 5000, 11900, 11900},
	}},
	{"a goroutine's goroutines: one answers, another was started before it", 7000, func(b *tracetext.Builder) {
		// 1 starts 2, which reports that it is ready and starts 3 and then 4, which answers.
		m, n, o := b.Thread(1), b.Thread(), b.Thread()
		m.Create(200*us, 2, "main.two", "main.handle")
		m.Block(200*us, "chan receive", recv("main.handle")...)
		n.Start(200*us, 2)
		n.Unblock(2000*us, 1, "runtime.chansend1", "main.two")
		m.Start(2000*us, 1)
		m.Block(2000*us, "chan receive", recv("main.handle")...)
		n.Create(2050*us, 3, "main.three", "main.two")
		n.Create(2100*us, 4, "main.four", "main.two")
		n.Destroy(2100 * us)
		n.Start(2100*us, 3)
		n.Block(2100*us, "sleep", "time.Sleep", "main.short", "main.three")
		o.Start(2100*us, 4)
		o.Block(2100*us, "sleep", "time.Sleep", "main.long", "main.four")
		n.Unblock(5500*us, 3)
		n.Start(5500*us, 3)
		n.Destroy(5500 * us)
		o.Unblock(6000*us, 4)
		o.Start(6000*us, 4)
		o.Unblock(6000*us, 1, "runtime.chansend1", "main.four")
		o.Destroy(6000 * us)
		m.Start(6000*us, 1)
		m.Block(7000*us, "forever", "main.end")
	}, []whatIf{
		// The answer may depend on what 3 did until 5500.
		{[]string{"long=gone"}, 2000 + 1000, 2000 + 1000, 5400 + 1000},
		{[]string{"long=gone", "short=gone"}, 3000, 3000, 3000},
	}},
	{"waiting for the P of a computation", 9000, func(b *tracetext.Builder) {
		// One P: 2 computes from 1000 to 7000, 1 is runnable from 3000 on.
		m, mon := b.Thread(), b.ThreadWithoutP()
		m.HasRun(1)
		b.Runnable(2)
		m.Block(1000*us, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", "main.call")
		m.Start(1000*us, 2)
		mon.Unblock(3000*us, 1)
		m.Block(7000*us, "chan receive", recv("main.hog")...)
		m.Start(7000*us, 1)
		m.Block(9000*us, "forever", "main.end")
	}, []whatIf{
		// The mesh of polls makes nothing of the network wait here: 1000 to 3000.
		// The 4000 from then on pass as what runs in them does.
		{[]string{"main.hog=50%", "main.call=100%"}, 8900 - 4000/2, 8900 - 4000*3/4, 8900},
		{[]string{"main.hog=gone", "main.call=100%"}, 8900 - 4000, 8900 - 4000, 8900},
	}},
	{"a hub that another goroutine had woken", 11000, func(b *tracetext.Builder) {
		// The hub wakes 1 at 1000. 1 computes until 9000 and sends to the hub's channel. The trace does not show that,
		// because another goroutine had woken the hub by then. The hub answers at 10000.
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		m.Block(200*us, "chan receive", recv("main.handle")...)
		n.Unblock(1000*us, 1, "runtime.chansend1", "main.hub")
		n.Block(1100*us, "select", "runtime.selectgo", "main.hub")
		m.Start(1000*us, 1)
		o.Unblock(8990*us, 2, "runtime.chansend1", "main.other")
		o.Block(8991*us, "forever", "main.end")
		n.Start(8990*us, 2)
		m.Block(9000*us, "chan receive", recv("main.compute")...)
		n.Unblock(10000*us, 1, "runtime.chansend1", "main.hub")
		n.Block(10100*us, "select", "runtime.selectgo", "main.hub")
		m.Start(10000*us, 1)
		m.Block(11000*us, "forever", "main.end")
	}, []whatIf{
		{[]string{"main.compute=gone"}, 900 + 1000 + 1000, 2900, 2900},
		{[]string{"main.compute=50%"}, 900 + 4000 + 1000 + 1000, 6900, 6900},
	}},
	{"ticker flush: goroutines that only queue do not count", 51000, func(b *tracetext.Builder) {
		// The batcher's ticks come at 0 and 50000. 1 sends to it at 10000, another goroutine at 20000.
		flush := []string{"runtime.selectgo", "main.flush"}
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		n.Block(0, "select", flush...)
		n.Unblock(1*us, 2)
		n.Start(1*us, 2)
		n.Block(2*us, "select", flush...)
		o.Block(20*us, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", "main.read")
		m.Unblock(10000*us, 2, "runtime.chansend1", "main.append")
		m.Block(10000*us, "chan receive", recv("main.append")...)
		n.Start(10000*us, 2)
		n.Block(10010*us, "select", flush...)
		o.Unblock(19990*us, 3)
		o.Start(19990*us, 3)
		o.Unblock(20000*us, 2, "runtime.chansend1", "main.append")
		o.Block(20000*us, "chan receive", recv("main.append")...)
		n.Start(20000*us, 2)
		n.Block(20010*us, "select", flush...)
		n.Unblock(50001*us, 2)
		n.Start(50001*us, 2)
		n.Unblock(50001*us, 1, "runtime.closechan", "main.flush")
		n.Block(50002*us, "select", flush...)
		m.Start(50001*us, 1)
		m.Block(51000*us, "forever", "main.end")
	}, []whatIf{
		// 9.9 ms before, 40 ms of a period of 50, 1 ms after.
		{[]string{"sleep@flush=5ms"}, -1, -1, 9900 + 10 + 3999 + 999},
	}},
	{"a server's pause, and the requests that arrived during it", 14300, func(b *tracetext.Builder) {
		// The server pauses until 10200 and then writes four times for 1 ms each, the last time for this request.
		m, n, r := b.Thread(1), b.Thread(), b.Thread(2)
		r.Block(50*us, "sleep", "time.Sleep", "main.pause", "main.server")
		m.Block(200*us, "chan receive", recv("main.ask")...)
		n.Unblock(10200*us, 2)
		r.Start(10200*us, 2)
		for i := range int64(4) {
			r.Syscall((10200+1000*i)*us, "syscall.write", "main.store", "main.server")
			r.SyscallEnd((11200 + 1000*i) * us)
		}
		r.Unblock(14200*us, 1, "runtime.chansend1", "main.server")
		r.Block(14200*us, "sleep", "time.Sleep", "main.pause", "main.server")
		m.Start(14200*us, 1)
		m.Block(14300*us, "forever", "main.end")
	}, []whatIf{
		// Three of the four are for requests that arrived in a pause of which a tenth remains.
		{[]string{"sleep@pause=10%"}, 100 + 1000 + 300 + 1000 + 100, -1, 100 + 1000 + 4000 + 100},
	}},
	{"a lock's holder that hardly works", 5700, func(b *tracetext.Builder) {
		// 2 sleeps with the lock until 5100 and works for 0.1 ms. 1 waits from 200 on, and runs 0.4 ms after it was woken.
		m, n, r := b.Thread(1), b.Thread(), b.Thread(2)
		r.Block(50*us, "sleep", "time.Sleep", "main.hold")
		m.Block(200*us, "sync", "sync.(*Mutex).Lock", "main.use")
		n.Unblock(5100*us, 2)
		r.Start(5100*us, 2)
		r.Unblock(5200*us, 1, "sync.(*Mutex).Unlock", "main.hold")
		r.Block(5201*us, "forever", "main.end")
		m.Start(5600*us, 1)
		m.Block(5700*us, "forever", "main.end")
	}, []whatIf{
		// A fiftieth of the wait is left, and of the wake-up after it.
		{[]string{"sleep@main.hold=gone"}, 100 + 100 + 8 + 100, -1, 100 + 100 + 400 + 100},
	}},
	{"a second call after a pause", 11100, twoTries(10650, false), []whatIf{
		{[]string{"sleep@pause=gone"}, 1000, 1000, 1000},
		{[]string{"sleep@pause=50%"}, 6000, 6000, 6000},
	}},
	{"a second call after a pause in which the connection had another request's answer", 11100, twoTries(10650, true), []whatIf{
		{[]string{"sleep@pause=gone"}, 1000, 1000, 1000},
		{[]string{"sleep@pause=50%"}, 6000, 6000, 6000},
	}},
	{"a call before a pause is answered no earlier", 11100, twoTries(560, false), []whatIf{
		{[]string{"sleep@pause=gone"}, 11000, 11000, 11000},
	}},
}

// twoTries builds a request that calls over a connection that another goroutine reads, gets its answer, pauses for 10 ms, and
// gets a second answer, for which it writes at secondWrite in us. The connection may have another request's answer in the pause, before
// which the request writes something else.
func twoTries(secondWrite int64, hasOtherAnswer bool) func(b *tracetext.Builder) {
	return func(b *tracetext.Builder) {
		m, n, r, o := b.Thread(1), b.Thread(), b.Thread(2), b.Thread(3)
		o.Block(0, "chan receive", recv("main.other")...)
		readerBlocks := func(time int64) {
			r.Block(time*us, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", "main.read")
		}
		write := func(time int64) {
			m.Syscall(time*us, "syscall.write", "main.ask")
			m.SyscallEnd((time + 10) * us)
		}
		answer := func(time int64) {
			n.Unblock(time*us, 2)
			r.Start(time*us, 2)
			r.Unblock((time+10)*us, 1, "runtime.chansend1", "main.read")
			readerBlocks(time + 20)
			m.Start((time+10)*us, 1)
		}
		readerBlocks(0)
		write(150)
		m.Block(200*us, "chan receive", recv("main.ask")...)
		answer(500)
		if secondWrite < 600 || hasOtherAnswer {
			write(560)
		}
		m.Block(600*us, "sleep", "time.Sleep", "main.pause", "main.ask")
		if hasOtherAnswer {
			n.Unblock(8000*us, 2)
			r.Start(8000*us, 2)
			r.Unblock(8010*us, 3, "runtime.chansend1", "main.read")
			r.Block(8020*us, "select", "main.read")
			o.Start(8020*us, 3)
			o.Unblock(8030*us, 2, "runtime.chansend1", "main.other")
			o.Block(8040*us, "chan receive", recv("main.other")...)
			r.Start(8040*us, 2)
			readerBlocks(8050)
		}
		n.Unblock(10600*us, 1)
		m.Start(10600*us, 1)
		if secondWrite > 600 {
			write(secondWrite)
		}
		m.Block(10700*us, "chan receive", recv("main.ask")...)
		answer(11000)
		m.Block(11100*us, "forever", "main.end")
	}
}

// modelOf builds the model of one graph.
func modelOf(t testing.TB, to int64, build func(b *tracetext.Builder)) (*Model, *Graph) {
	t.Helper()
	win, syms := timelinetest.BuildWindow(t, build)
	from, end := int64(100*us+tracetext.Origin), to*us+tracetext.Origin
	b := NewBuilder(path.New(win, syms, path.Options{}))
	must.True(t, b.stage.Graph(1, from, end) != nil, "there is no graph")
	g := b.Build(1, from, end)
	s := new(Sample)
	s.Count(from, end, 1, 1)
	s.Add(g)
	m := NewModel(syms, settled, to*us, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
	latency := g.Latency
	m.AddGroup("g", s, report.Latency{P50: &latency, P99: &latency})
	return m, g
}

func parse(t *testing.T, texts []string) []Change {
	t.Helper()
	var out []Change
	for _, s := range texts {
		c := must.Have(Parse(s))(t)
		out = append(out, c)
	}
	return out
}

func TestGraphs(t *testing.T) {
	for _, c := range graphs {
		t.Run(c.name, func(t *testing.T) {
			m, g := modelOf(t, c.to, c.build)
			won := func(us int64) int64 { return int64(threshold.NoiseShare * float64(g.Latency/1000-us)) }
			for _, w := range c.predictions {
				if w.low >= 0 {
					w.low -= won(w.low)
				}
				if w.low >= 0 && w.est >= 0 && float64(w.est) <= threshold.MinorShare*float64(g.Latency/1000) {
					w.low = 0
				}
				if w.high >= 0 {
					w.high += won(w.high)
				}
				p := m.WhatIf("g", parse(t, w.changes))
				if p == nil {
					t.Errorf("%v: meets nothing", w.changes)
					continue
				}
				for _, v := range []struct {
					name      string
					got, want int64
				}{{"est", p.P50NS.Est, w.est}, {"low", p.P50NS.Low, w.low}, {"high", p.P50NS.High, w.high}} {
					check.False(t, v.want >= 0 && max(v.got-v.want*us, v.want*us-v.got) > v.want*us/200,
						"%v: %s is %v, not %v", w.changes, v.name, time.Duration(v.got), time.Duration(v.want*us))
				}
			}
		})
	}
}

// TestProperties: a change that changes nothing predicts the measured latency; a shorter length never predicts more; the
// estimate is in its range.
func TestProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, c := range graphs {
		t.Run(c.name, func(t *testing.T) {
			m, g := modelOf(t, c.to, c.build)
			sites := []string{"main.nap", "main.long", "main.short", "main.hold", "main.compute", "main.enrich", "main.parse", "main.flush", "main.note", "sleep@", "cpu@"}
			for _, site := range sites {
				for _, noChange := range []string{"=100%", "=1h"} {
					if p := m.WhatIf("g", parse(t, []string{site + noChange})); p != nil && (p.P50NS.Est != g.Latency || p.P50NS.Low != g.Latency || p.P50NS.High != g.Latency) {
						t.Errorf("%s%s predicts %v, not the measured %v", site, noChange, p.P50NS, time.Duration(g.Latency))
					}
				}
				last := [3]int64{}
				isMonotonic := func(c Change) bool {
					p := m.WhatIf("g", []Change{c})
					if p == nil {
						return false
					}
					e := p.P50NS
					must.True(t, e.Low <= e.Est && e.Est <= e.High, "%v: %v", c, e)
					for i, x := range []int64{e.Est, e.Low, e.High} {
						must.True(t, x >= last[i], "%v predicts less than a shorter length: %v after %v", c, e, last)
						last[i] = x
					}
					return true
				}
				change := parse(t, []string{site + "=0"})[0]
				change.Relative = false
				for change.To < 60*time.Millisecond && isMonotonic(change) {
					change.To += time.Duration(1 + rnd.IntN(3000000))
				}
				last = [3]int64{}
				change.Relative = true
				for change.Scale <= 1 && isMonotonic(change) {
					change.Scale += 0.2 * rnd.Float64()
				}
			}
		})
	}
}

// settled decides that there were no freezes.
var settled = cause.Settle(func(freeze.Class) bool { return false })

// TestThrottle: an interval in a candidate freeze has the cause throttle if that was a freeze, else its own cause.
func TestThrottle(t *testing.T) {
	win, syms := timelinetest.BuildWindow(t, graphs[0].build)
	from, to := int64(100*us+tracetext.Origin), graphs[0].to*us+tracetext.Origin
	for _, isFrozen := range []bool{true, false} {
		builder := NewBuilder(path.New(win, syms, path.Options{}))
		builder.split = func(segs []cause.Segment) []cause.Segment {
			segs = slices.Clone(segs)
			for i := range segs {
				if segs[i].Code == cause.Code(cause.CPU) {
					segs[i].Code = cause.Pending(cause.CPU, freeze.InPhase)
				}
			}
			return segs
		}
		s := new(Sample)
		s.Count(from, to, 1, 1)
		s.Add(builder.Build(1, from, to))
		settled := cause.Settle(func(c freeze.Class) bool { return isFrozen && c == freeze.InPhase })
		m := NewModel(syms, settled, to-from, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
		m.AddGroup("g", s, report.Latency{})
		if p := m.WhatIf("g", []Change{Remove("throttle", "")}); (p != nil) != isFrozen || p != nil && p.P50NS.Est != 10000*us {
			t.Errorf("frozen %t: without throttling it is %+v", isFrozen, p)
		}
		if p := m.WhatIf("g", []Change{Remove("cpu", "")}); (p == nil) != isFrozen {
			t.Errorf("frozen %t: without computing it is %+v", isFrozen, p)
		}
	}
}

// TestReservedGraphs: of the requests in the last generations, only graphs of groups that the report shows are built.
func TestReservedGraphs(t *testing.T) {
	win, syms := timelinetest.BuildWindow(t, graphs[0].build)
	stage, samples := path.New(win, syms, path.Options{}), NewSamples()
	adder := samples.NewAdder(stage)
	for name := range tracefmt.StringID(2) {
		adder.Add(stage.Walk(&request.Request{Kind: request.Task, Name: name, G: 1, Start: 100*us + tracetext.Origin, End: graphs[0].to*us + tracetext.Origin}))
	}
	samples.Merge(path.MergeIDs([]*path.Stage{stage}))
	samples.Build(slices.Values([]path.GroupID{1}))()
	for id, want := range []bool{false, true} {
		samples.SampleOf(path.GroupID(id)).eachGraph(func(g *Graph, _ float64) {
			check.True(t, g.builder == nil == want && len(g.nodes) > 0 == want, "group %d has the graph %+v", id, g)
		})
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text string
		want Change
	}{
		{"main.f=5ms", Change{Site: "main.f", To: 5 * time.Millisecond}},
		{"a/b.go:12=50%", Change{Site: "a/b.go:12", Relative: true, Scale: 0.5}},
		{"f=gone", Change{Site: "f", Relative: true}},
		{"f=0", Change{Site: "f", Relative: true}},
		{"f=1ns", Change{Site: "f", To: 1}},
		{"sleep@f=1s", Change{Cause: "sleep", Site: "f", To: time.Second}},
		{"queue@f=50%", Change{Cause: "queue", Site: "f", Relative: true, Scale: 0.5}},
		{"gc@=gone", Change{Cause: "gc", Relative: true}},
		{"golang.org/x/time@v0.16.0/rate/rate.go:300=1ms", Change{Site: "golang.org/x/time@v0.16.0/rate/rate.go:300", To: time.Millisecond}},
	} {
		got, err := Parse(c.text)
		check.True(t, err == nil && got == c.want, "%q is %+v, %v; want %+v", c.text, got, err, c.want)
		if reparsed, err := Parse(got.String()); err != nil || reparsed != got {
			t.Errorf("%q, written as %q, is %+v, %v", c.text, got.String(), reparsed, err)
		}
	}
	if c, err := Parse("f=0ms"); err != nil || c != (Change{Site: "f"}) { // gone, in a unit
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []string{"", "f", "=5ms", "f=", "f=fast", "f=-5ms", "f=101%", "f=-1%", "f=NaN%", "queue@f=5ms"} {
		if c, err := Parse(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, c)
		}
	}
}

func TestValidate(t *testing.T) {
	m, _ := modelOf(t, graphs[1].to, graphs[1].build)
	for _, ok := range []string{"long=1ms", "main.long=1ms", "sleep@main.long=1ms", "sleep@=1ms"} {
		c := parse(t, []string{ok})[0]
		if _, err := m.Validate(&c); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for unknown, suggestion := range map[string]string{"lnog=1ms": "sleep@main.long", "network@long=1ms": "sleep@main.long", "ong=1ms": "sleep@main.long", "queue=gone": "is queue@", "network=50%": "is network@"} {
		c := parse(t, []string{unknown})[0]
		if _, err := m.Validate(&c); err == nil || !strings.Contains(err.Error(), suggestion) {
			t.Errorf("%s: the error is %v; it should suggest %s", unknown, err, suggestion)
		}
	}
}

// TestSample: the selection depends neither on the order nor on the division of requests, is bounded, and represents all
// requests.
func TestSample(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var all []*Graph
	for i := range 20000 {
		all = append(all, &Graph{Latency: int64(1000 * (1 + rnd.ExpFloat64()*1000)), Start: int64(i) * 1000, G: uint64(rnd.IntN(100))})
	}
	sampleOf := func(gs []*Graph) *Sample {
		s := new(Sample)
		for _, g := range gs {
			if s.Count(g.Start, g.Start+g.Latency, g.G, 1) {
				s.Add(g)
			}
		}
		return s
	}
	describe := func(s *Sample) (text string, n int, weight float64) {
		s.eachGraph(func(g *Graph, w float64) {
			text += fmt.Sprintln(g.Start, g.G, w)
			n++
			weight += w
		})
		return text, n, weight
	}
	want, n, weight := describe(sampleOf(all))
	check.True(t, n <= 60*maxPerStratum && weight >= 19999.9 && weight <= 20000.1, "%d are sampled and represent %v", n, weight)
	for range 5 {
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		split := rnd.IntN(len(all))
		a, b := sampleOf(all[:split]), sampleOf(all[split:])
		a.Merge(b)
		if got, _, _ := describe(a); got != want {
			t.Fatal("another order, or two merged samples, select other requests")
		}
	}
}

func TestRegularity(t *testing.T) {
	var constant, random []point
	for i := range 1000 {
		constant = append(constant, point{10 + float64(i%3)/10, 1})
		random = append(random, point{-math.Log(1 - (float64(i)+0.5)/1000), 1})
	}
	constant[0].value = 1e6 // another cause
	if r := regularity(constant); r < 0.99 {
		t.Errorf("a queue of constant length has regularity %v", r)
	}
	check.Equal(t, regularity(random), 0, "an exponential one has regularity")
}

func TestClosedWait(t *testing.T) {
	// One client never waits; without rest n clients wait for n-1 others.
	check.Equal(t, closedWait(1, 5, 3), 0, "one client waits")
	if w := closedWait(4, 5, 0); w != 15 {
		t.Errorf("four clients without rest wait %v, not 15", w)
	}
	// Each finds the other one in half of the cases; longer rest means less waiting.
	if w := closedWait(2, 5, 5); w != 2.5 {
		t.Errorf("two clients that rest as long as they are served wait %v, not 2.5", w)
	}
}

// TestQueueWithoutOtherRequests: five clients in turn hold something for 5 ms each, so each waits for four others. The gain
// of half of that does not depend on requests of the same handler that never come there. It fails if those count among the
// holders: the queue then looks short and irregular, and nearly all of it seems to be saved.
func TestQueueWithoutOtherRequests(t *testing.T) {
	_, syms := timelinetest.BuildWindow(t, graphs[0].build)
	hold := target{cause: cause.Sleep}
	for _, elsewhere := range []int64{0, 3, 30} {
		s := new(Sample)
		n := int64(0)
		add := func(parts ...interval) {
			g := chained(n, parts...)
			n++
			s.Count(g.Start, g.Start+g.Latency, g.G, 1)
			s.Add(g)
		}
		for range 5 {
			add(interval{target: hold, ns: 20000 * us, otherWork: true}, interval{target: hold, ns: 5000 * us})
		}
		for range elsewhere {
			add(interval{target: target{cause: cause.Network}, ns: 1000 * us})
		}
		m := NewModel(syms, settled, n*5000*us, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
		slowest := int64(25000 * us)
		m.AddGroup("g", s, report.Latency{Max: &slowest})
		if p := m.WhatIf("g", parse(t, []string{"sleep@=50%"})); p == nil || p.MaxNS.Est != slowest/2 {
			t.Errorf("with %d requests that hold nothing, the others take %+v", elsewhere, p.MaxNS)
		}
	}
}

// TestWorkShareOf: 2 of 5 requests that work have waited for the work of others before, and 15 only wait for it.
func TestWorkShareOf(t *testing.T) {
	_, syms := timelinetest.BuildWindow(t, graphs[0].build)
	ownWork, foreignWork := interval{target: target{cause: cause.Sleep}, ns: 5000 * us}, interval{target: target{cause: cause.Sleep}, ns: 4000 * us, otherWork: true}
	shortWork := foreignWork
	shortWork.ns = 100 * us
	sample, count := new(Sample), int64(0)
	addRequests := func(requests int, parts ...interval) {
		for range requests {
			graph := chained(count, parts...)
			sample.Count(graph.Start, graph.Start+graph.Latency, graph.G, 1)
			sample.Add(graph)
			count++
		}
	}
	addRequests(2, foreignWork, ownWork)
	addRequests(2, ownWork)
	addRequests(1, shortWork, ownWork)
	addRequests(15, foreignWork)
	model := NewModel(syms, settled, count*5000*us, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
	model.AddGroup("g", sample, report.Latency{})
	share, ok := model.WorkShareOf("g", Remove(report.CauseSleep, ""))
	check.True(t, ok && math.Abs(share.Doing-0.25) < 1e-9 && math.Abs(share.Repeating-0.4) < 1e-9, "%+v", share)
	_, ok = model.WorkShareOf("g", Remove(report.CauseNetwork, ""))
	check.False(t, ok, "no request waits for the network")
}

// TestDividedService: the last wait of a worker is the request's own service, even if a freeze or a stop of the world divides
// it; an equal wait before it was for another request. It fails if the part before the division counts as a queue, of which
// more is saved than of a service.
func TestDividedService(t *testing.T) {
	_, syms := timelinetest.BuildWindow(t, graphs[0].build)
	service := func(ns, whole int64) interval {
		return interval{target: target{cause: cause.Sleep}, ns: ns * us, fullNS: whole * us, otherWork: true, deliversResult: true}
	}
	freeze := interval{target: target{cause: cause.STW}, ns: 500 * us}
	for _, c := range []struct {
		name   string
		parts  []interval
		change string
		want   int64 // us; 0: no prediction
	}{
		{"whole", []interval{service(9000, 9000)}, "sleep@=50%", 4500},
		{"divided", []interval{service(3000, 9000), freeze, service(6000, 9000)}, "sleep@=50%", 500 + 4500},
		{"divided, no queue", []interval{service(3000, 9000), freeze, service(6000, 9000)}, "queue@=gone", 0},
		{"two", []interval{service(9000, 9000), service(9000, 9000)}, "queue@=gone", 9000},
	} {
		s := new(Sample)
		g := chained(1, c.parts...)
		s.Count(g.Start, g.Start+g.Latency, g.G, 1)
		s.Add(g)
		m := NewModel(syms, settled, g.Latency, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
		m.AddGroup("g", s, report.Latency{P50: &g.Latency, P99: &g.Latency})
		p := m.WhatIf("g", parse(t, []string{c.change}))
		if c.want == 0 {
			check.True(t, p == nil, "%s: %s predicts %+v", c.name, c.change, p)
			continue
		}
		if p == nil {
			t.Errorf("%s: %s meets nothing", c.name, c.change)
			continue
		}
		// The work of others makes the request's own service neither longer nor shorter: the range is that of every
		// prediction.
		won := float64(g.Latency - c.want*us)
		if e := p.P50NS; e.Est != c.want*us || float64(e.High-e.Low) > 2.1*threshold.NoiseShare*won+10*us {
			t.Errorf("%s: %s predicts %+v, want %d us and no more range than that of every prediction", c.name, c.change, e, c.want)
		}
	}
}

// BenchmarkWhatIf measures one prediction for a group of 240 graphs.
func BenchmarkWhatIf(b *testing.B) {
	m, g := modelOf(b, graphs[4].to, graphs[4].build)
	s := new(Sample)
	for i := range int64(240) {
		c := *g
		c.Start, c.Latency = g.Start+i, g.Latency<<(i/maxPerStratum/4)+g.Latency*(i/maxPerStratum%4)/4
		s.Count(c.Start, c.Start+c.Latency, c.G, 1)
		s.Add(&c)
	}
	m = NewModel(m.syms, m.settlement, m.duration, m.sitesBelow)
	m.AddGroup("g", s, report.Latency{})
	change := []Change{Halve("", "main.hold")}
	for b.Loop() {
		must.True(b, m.WhatIf("g", change) != nil, "meets nothing")
	}
	b.ReportMetric(float64(len(m.groups["g"].graphs)), "graphs")
}

// TestExtrapolate: the effect of a change on the sample's median request is extrapolated to the group's median by the effect
// on other requests: the same time from each, the same share of each, or something between. It fails if only the share is
// used.
func TestExtrapolate(t *testing.T) {
	for name, c := range map[string]struct {
		changed                func(latency float64) float64
		sampleLatency, latency float64
		want                   float64
	}{
		"the same time":           {func(l float64) float64 { return l - 390 }, 412, 440, 50},
		"the same time, shorter":  {func(l float64) float64 { return l - 390 }, 440, 412, 22},
		"the same share":          {func(l float64) float64 { return l / 4 }, 412, 440, 110},
		"more of the longer ones": {func(l float64) float64 { return 500 - l }, 412, 440, 88. * 440 / 412}, // not less than by share
		"all of nearly each":      {func(l float64) float64 { return 1 }, 412, 440, 440. / 412},
		"nothing":                 {func(l float64) float64 { return l }, 412, 440, 440},
		"slower":                  {func(l float64) float64 { return 2 * l }, 412, 440, 880},
		"no other of that length": {func(l float64) float64 { return l - 390 }, 4120, 4400, 3730. * 4400 / 4120},
	} {
		s := new(series)
		for l := 400.; l < 460; l += 4 {
			latency := c.changed(l)
			s.requests = append(s.requests, &retimedRequest{weightedGraph: &weightedGraph{Graph: &Graph{Latency: int64(l)}, weight: 1}, latencies: variantValues{est: latency, low: latency, high: latency}})
		}
		if got := s.extrapolate(est, c.sampleLatency, c.changed(c.sampleLatency), c.latency); math.Abs(got-c.want) > 1e-3*c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestMovedWaker: without the queue, the worker that ends a wait begins the request earlier. A goroutine of the request does not.
func TestMovedWaker(t *testing.T) {
	_, syms := timelinetest.BuildWindow(t, graphs[0].build)
	for otherWork, want := range map[bool]float64{true: 10, false: 900} {
		m := NewModel(syms, settled, 1e9, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
		trial := &trial{model: m, changes: []trialChange{{Change: Remove(Queue, "main.submit"), waits: map[tracefmt.StackID]bool{1: true}}}, nodeTimes: []variantValues{{est: 900}}}
		graph := &Graph{nodes: []node{{time: 900, otherWork: otherWork}, {time: 900}}}
		end := trial.waitEnd(graph, &graph.nodes[1], &critpath.Edge{Wait: 1, WaitKind: critpath.WaitSend}, 10, 900, est)
		check.True(t, end == 10 && trial.nodeTimes[0][est] == want, "other work %t: wait ends at %v, its waker's work at %v", otherWork, end, trial.nodeTimes[0][est])
	}
}
