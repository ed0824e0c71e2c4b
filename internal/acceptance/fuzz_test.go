package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// FuzzExplain checks that no trace, however damaged, makes Explain panic or
// hang, that the report does not depend on the number of workers, and that the
// parts of every request in it add up.
func FuzzExplain(f *testing.F) {
	inputs, err := refdata.FuzzInputs()
	if err != nil {
		f.Fatal(err)
	}
	for _, data := range inputs {
		f.Add(data, false)
		f.Add(data, true)
	}
	data, err := twoConnections().Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, false)
	f.Add(data, true)
	f.Fuzz(func(t *testing.T, data []byte, all bool) {
		if len(data) > 1<<18 {
			return
		}
		opts := whylate.Options{Slowest: 5}
		if all {
			opts.Request = regexp.MustCompile(`.`)
		}
		checkConsistent(t, data, opts.Request, true)
		one, many := explainFuzzed(t, data, opts, 1), explainFuzzed(t, data, opts, 3)
		if !bytes.Equal(one, many) {
			t.Errorf("with 3 workers the report is another one: %s", firstDifference(one, many))
		}
	})
}

// explainFuzzed returns the report's JSON, or the error's text.
func explainFuzzed(t *testing.T, data []byte, opts whylate.Options, workers int) []byte {
	opts.Workers = workers
	rep, err := whylate.Explain(context.Background(), bytes.NewReader(data), opts)
	if err != nil {
		if rep != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("both a report and an error: %v", err)
		}
		return []byte(err.Error())
	}
	schematest.Report(t, rep)
	for i := range rep.Groups {
		for k := range rep.Groups[i].Slowest {
			checkRequest(t, rep, &rep.Groups[i], &rep.Groups[i].Slowest[k])
		}
	}
	text := must.Have(json.Marshal(rep))(t)
	if _, err := report.ReadJSON(bytes.NewReader(text)); err != nil {
		t.Errorf("the report cannot be read back: %v", err)
	}
	return text
}

// twoConnections is a small trace of a server with two keep-alive connections
// whose requests wait for a lock, a timer, a goroutine that they start and a
// collection, over three generations: what the reference reader's traces lack.
func twoConnections() *tracetext.Builder {
	const us = 1000
	serve := []string{"net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve:2074"}
	in := func(frames ...string) []string { return append(frames, serve...) }
	idle := []string{"internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve[2]}
	answer := []string{"syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", serve[2]}
	b := tracetext.New(26)
	m, o, poller := b.Thread(), b.Thread(), b.ThreadWithoutP()
	b.Waiting(7)
	b.Waiting(8)
	at := int64(1 * us)
	then := func(us100 int64) int64 { at += us100 * 100 * us; return at }
	child := uint64(20)
	m.ProcsChange(then(1), 2, "runtime.GOMAXPROCS", "main.main")
	for round := range 6 {
		poller.Unblock(then(1), 7)
		m.Start(then(1), 7)
		poller.Unblock(then(1), 8)
		o.Start(then(1), 8)
		o.Block(then(2), "sync", in("sync.(*Mutex).Lock", "main.(*shop).order")...)
		child++
		m.Create(then(1), child, "main.(*shop).price.func1", in("main.(*shop).price", "main.(*shop).order")...)
		m.Block(then(1), "chan receive", in("runtime.chanrecv1", "main.(*shop).price", "main.(*shop).order")...)
		o.Start(then(3), child)
		b.Sample(then(2), o, child, "main.compute", "main.(*shop).price.func1")
		if round == 2 {
			m.StopWorld(then(1), "GC sweep termination", "runtime.gcStart")
			m.GCBegin(then(1), "runtime.gcStart")
			m.StartWorld(then(1))
			o.AssistBegin(then(1), "runtime.gcAssistAlloc", "main.compute")
			o.AssistEnd(then(2))
		}
		o.Unblock(then(4), 7, "runtime.chansend1", "main.(*shop).price.func1")
		o.Destroy(then(1))
		m.Start(then(1), 7)
		m.HeapAlloc(then(1), uint64(1000*round))
		m.Unblock(then(2), 8, in("sync.(*Mutex).Unlock", "main.(*shop).order")...)
		m.Syscall(then(1), answer...)
		m.SyscallEnd(then(1))
		m.Block(then(1), "network", idle...)
		o.Start(then(1), 8)
		o.Block(then(1), "sleep", in("time.Sleep", "main.(*shop).order")...)
		poller.Unblock(then(10), 8)
		m.Start(then(1), 8)
		m.Stop(then(5), "preempted", in("main.compute", "main.(*shop).order")...)
		m.Start(then(1), 8)
		if round == 3 {
			m.GCEnd(then(1))
		}
		m.Syscall(then(1), answer...)
		m.SyscallEnd(then(1))
		m.Block(then(1), "network", idle...)
		if round%2 == 1 {
			b.NextGeneration(then(1))
		}
	}
	return b
}
