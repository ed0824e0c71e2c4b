package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// FuzzExplain checks that Explain neither panics nor hangs on any trace, however damaged, that the report does not depend on
// the number of workers, and that the parts of every request add up.
func FuzzExplain(f *testing.F) {
	inputs, err := refdata.FuzzInputs()
	must.Do(f, err)
	for _, data := range inputs {
		f.Add(data, false)
		f.Add(data, true)
	}
	data, err := twoConnectionTrace().Bytes()
	must.Do(f, err)
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
		serialReport, parallelReport := explainFuzzed(t, data, opts, 1), explainFuzzed(t, data, opts, 3)
		check.True(t, bytes.Equal(serialReport, parallelReport), "the report differs with 3 workers: %s", firstDifference(serialReport, parallelReport))
	})
}

// explainFuzzed returns the report as JSON, or the error's text.
func explainFuzzed(t *testing.T, data []byte, opts whylate.Options, workers int) []byte {
	opts.Workers = workers
	rep, err := whylate.Explain(context.Background(), bytes.NewReader(data), opts)
	if err != nil {
		check.False(t, rep != nil && !errors.Is(err, context.Canceled), "both a report and an error: %v", err)
		return []byte(err.Error())
	}
	schematest.Report(t, rep)
	check.False(t, rep.Judged != nil && slices.ContainsFunc(rep.Judged.Blind, func(b report.Blind) bool { return b.Reason == report.BlindError }), "a rule failed: %+v", rep.Judged)
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

// twoConnectionTrace writes a small trace of a server with two keep-alive connections. In three generations, its requests wait
// for a lock, a timer, a goroutine that they start, and a garbage collection, which the reference reader's traces lack.
func twoConnectionTrace() *tracetext.Builder {
	const us = 1000
	serve := []string{"net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve:2074"}
	inHandler := func(frames ...string) []string { return append(frames, serve...) }
	idle := []string{"internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve[2]}
	answer := []string{"syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", serve[2]}
	b := tracetext.New(26)
	first, second, poller := b.Thread(), b.Thread(), b.ThreadWithoutP()
	b.Waiting(7)
	b.Waiting(8)
	clock := int64(1 * us)
	after := func(us100 int64) int64 { clock += us100 * 100 * us; return clock }
	child := uint64(20)
	first.ProcsChange(after(1), 2, "runtime.GOMAXPROCS", "main.main")
	for round := range 6 {
		poller.Unblock(after(1), 7)
		first.Start(after(1), 7)
		poller.Unblock(after(1), 8)
		second.Start(after(1), 8)
		second.Block(after(2), "sync", inHandler("sync.(*Mutex).Lock", "main.(*shop).order")...)
		child++
		first.Create(after(1), child, "main.(*shop).price.func1", inHandler("main.(*shop).price", "main.(*shop).order")...)
		first.Block(after(1), "chan receive", inHandler("runtime.chanrecv1", "main.(*shop).price", "main.(*shop).order")...)
		second.Start(after(3), child)
		b.Sample(after(2), second, child, "main.compute", "main.(*shop).price.func1")
		if round == 2 {
			first.StopWorld(after(1), "GC sweep termination", "runtime.gcStart")
			first.GCBegin(after(1), "runtime.gcStart")
			first.StartWorld(after(1))
			second.AssistBegin(after(1), "runtime.gcAssistAlloc", "main.compute")
			second.AssistEnd(after(2))
		}
		second.Unblock(after(4), 7, "runtime.chansend1", "main.(*shop).price.func1")
		second.Destroy(after(1))
		first.Start(after(1), 7)
		first.HeapAlloc(after(1), uint64(1000*round))
		first.Unblock(after(2), 8, inHandler("sync.(*Mutex).Unlock", "main.(*shop).order")...)
		first.Syscall(after(1), answer...)
		first.SyscallEnd(after(1))
		first.Block(after(1), "network", idle...)
		second.Start(after(1), 8)
		second.Block(after(1), "sleep", inHandler("time.Sleep", "main.(*shop).order")...)
		poller.Unblock(after(10), 8)
		first.Start(after(1), 8)
		first.Stop(after(5), "preempted", inHandler("main.compute", "main.(*shop).order")...)
		first.Start(after(1), 8)
		if round == 3 {
			first.GCEnd(after(1))
		}
		first.Syscall(after(1), answer...)
		first.SyscallEnd(after(1))
		first.Block(after(1), "network", idle...)
		if round%2 == 1 {
			b.NextGeneration(after(1))
		}
	}
	return b
}
