package explain

import (
	"bytes"
	"context"
	"io"
	"net/http/httptest"
	"runtime"
	"runtime/trace"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
)

// TestFlight explains a flight recording of this process: it has the marked requests and the kernel's counters.
func TestFlight(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	rec, err := flight.Start(flight.Options{Dir: t.TempDir(), Budget: -1})
	must.Do(t, err)
	defer rec.Stop()
	var bundled *bundle.Bundle
	jobs := 0
	// Expensive samples are taken less often, so a slow machine needs more jobs to get enough of them.
	for samples := 0; (jobs < 3 || samples <= 3) && jobs < 50; jobs++ {
		_ = mark.Do(context.Background(), "nightly job", func(context.Context) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		response := httptest.NewRecorder()
		rec.ServeHTTP(response, httptest.NewRequest("GET", "/", nil))
		if bundled, err = bundle.New(bytes.NewReader(response.Body.Bytes()), int64(response.Body.Len())); err != nil {
			t.Fatal(err)
		}
		trace, _, err := bundled.Trace()
		must.Do(t, err)
		data, err := io.ReadAll(trace)
		trace.Close()
		must.Do(t, err)
		samples = bytes.Count(data, []byte(`"kind":"sample"`))
	}
	if m := bundled.Meta(); m.Flight == nil || m.Flight.Reason.Kind != "asked" || m.Flight.Service["pid"] == "" || m.Go != runtime.Version() {
		t.Errorf("the metadata is %+v", m)
	}
	trace, _, err := bundled.Trace()
	must.Do(t, err)
	defer trace.Close()
	rep, err := Explain(context.Background(), trace, Options{})
	must.Do(t, err)
	if len(rep.Groups) != 1 || rep.Groups[0].Name != "nightly job" || rep.Groups[0].Kind != report.KindMark || rep.Groups[0].Count != jobs || rep.Groups[0].Statuses["ok"] != jobs {
		t.Fatalf("after %d jobs the groups are %+v", jobs, rep.Groups)
	}
	check.False(t, runtime.GOOS == "linux" && (rep.Host == nil || rep.Host.Samples < 3 || rep.Host.Lost.RunDelayNS == nil),
		"of the host it knows %+v, with the warnings %v", rep.Host, rep.Input.Warnings)
}

// TestHostLog checks the clocks of the lines.
func TestHostLog(t *testing.T) {
	snapshot := &tracefmt.ClockSnapshot{Mono: 5000, UnixSec: 7, UnixNsec: 100}
	log := hostLog{lines: []hostLine{{1100, `{"kind":"sample"}`}, {900, `{"kind":"sample","run_ns":3}`}}}
	check.True(t, log.reader(snapshot, 1000) == nil, "there are samples without a start")
	log.start = `{"kind":"start"}`
	check.True(t, log.reader(nil, 0) == nil, "there are samples without a clock")
	got := must.Have(io.ReadAll(log.reader(snapshot, 1000)))(t)
	want := `{"mono_ns":5100,"wall_ns":7000000200,"kind":"start"}
{"mono_ns":5100,"wall_ns":7000000200,"kind":"sample"}
{"mono_ns":4900,"wall_ns":7000000000,"kind":"sample","run_ns":3}
`
	check.True(t, string(got) == want, "got\n%swant\n%s", got, want)
}
