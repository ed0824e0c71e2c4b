package groups_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// TestSamplesOfOtherRequests: requests without a CPU sample show neither their handler nor the site of their computations.
// Samples of other requests, in runs that end at the same function, decide: of similar length if there are enough, else of
// any length, else none. It fails if all of that time remains at the write that ended the run although there are samples.
func TestSamplesOfOtherRequests(t *testing.T) {
	const ms = 1_000_000
	type sampled struct {
		fn      string
		lengths []int64 // of requests that have one sample each, in ms
	}
	for _, c := range []struct {
		name    string
		sampled []sampled
		want    string
		source  string
	}{
		{"of similar length", []sampled{{"main.spin", []int64{1, 1, 1, 1, 1}}, {"main.sort", []int64{64, 64, 64, 64, 64, 64, 64}}}, "main.spin", "sample"},
		{"of other lengths, few of each", []sampled{{"main.spin", []int64{4, 4, 16, 16, 64}}}, "main.spin", "sample"},
		{"too few", []sampled{{"main.spin", []int64{4, 16, 16, 64}}}, "net/http.(*conn).serve", "bracket"},
	} {
		handlerStack := []string{"net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve"}
		idleStack := []string{"internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", "net/http.(*conn).serve:2103"}
		b := tracetext.New(26)
		th, poller := b.Thread(), b.ThreadWithoutP()
		b.Waiting(7)
		now := int64(10 * ms)
		request := func(length int64, sample ...string) {
			poller.Unblock(now, 7)
			th.Start(now+1000, 7)
			if len(sample) > 0 {
				b.Sample(now+length/2, th, 7, append(sample, handlerStack...)...)
			}
			th.Syscall(now+length, "syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", "net/http.(*conn).serve:2074")
			th.SyscallEnd(now + length + 1000)
			th.Block(now+length+2000, "network", idleStack...)
			now += length + 10*ms
		}
		const unseen = 5
		for range unseen + 1 { // the first one ends a request that began before the trace
			request(ms)
		}
		for _, s := range c.sampled {
			for _, length := range s.lengths {
				request(length*ms, s.fn, "main.compute")
			}
		}
		data := must.Have(b.Bytes())(t)
		rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{}))(t)
		for _, g := range rep.Groups {
			if g.Named {
				continue
			}
			if first := g.All().Causes[0]; g.Count != unseen || first.Cause != report.CauseCPU || first.Site.Func != c.want || first.SiteFrom != c.source {
				t.Errorf("%s: %d requests without a handler were at %s %+v (%q), want %s (%q)", c.name, g.Count, first.Cause, first.Site, first.SiteFrom, c.want, c.source)
			}
		}
	}
}
