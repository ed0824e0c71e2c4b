package service

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/debugz"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

func TestStart(t *testing.T) {
	var buf bytes.Buffer
	env := map[string]string{"WHYLATE_GOMAXPROCS": "observe", "WHYLATE_GOGC": "loud"}
	s := start(Options{Logger: slog.New(slog.NewTextHandler(&buf, nil))}, func(k string) string { return env[k] })
	st := s.State()
	if st.Tune.ProcsMode != tune.ModeObserve || st.Tune.MemoryMode != tune.ModeObserve || st.Tune.GOMAXPROCS < 1 || st.Probe.Started.IsZero() {
		t.Errorf("%+v", st)
	}
	w := httptest.NewRecorder()
	s.Handler(debugz.Options{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	check.True(t, strings.Contains(w.Body.String(), "freezes") && strings.Contains(w.Body.String(), "GOGC"),
		"the page lacks the probe or the tuner:\n%s", w.Body)
	s.Stop()
	s.Stop()
	check.False(t, s.State().Tune.Time.IsZero(), "no state after Stop")
	check.True(t, strings.Contains(buf.String(), "loud") && strings.Contains(buf.String(), "GOMAXPROCS"), "log:\n%s", buf.String())
}

func TestStartWithOptions(t *testing.T) {
	var buf bytes.Buffer
	s := Start(Options{
		Logger: slog.New(slog.NewTextHandler(&buf, nil)),
		Tune:   &tune.Options{Procs: tune.ModeOff, GC: tune.ModeOff, Cgroup: cgroup.Options{FS: fstest.MapFS{}}},
	})
	defer s.Stop()
	if s.Tuner().State().ProcsMode != tune.ModeOff || s.Probe() == nil || !strings.Contains(buf.String(), "GOMEMLIMIT") || strings.Contains(buf.String(), "GOMAXPROCS") {
		t.Errorf("%+v\n%s", s.State(), buf.String())
	}
}

// TestStartFlight starts the recorder with the other components: freezes trigger it,
// also if the caller has set OnFreeze, and the page serves it.
func TestStartFlight(t *testing.T) {
	var log bytes.Buffer
	o := Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Flight: &flight.Options{Dir: t.TempDir()}}
	s := start(o, func(string) string { return "" })
	defer s.Stop()
	must.True(t, s.Flight() != nil && s.State().Flight != nil, "there is no recorder")
	w := httptest.NewRecorder()
	s.Handler(debugz.Options{}).ServeHTTP(w, httptest.NewRequest("GET", "/debug/flight?state", nil))
	check.True(t, w.Code == 200 && strings.Contains(w.Body.String(), `"cost"`), "it answers %d %s", w.Code, w.Body)
	s.Stop()
	check.False(t, s.State().Flight.Recording, "it records after Stop")
	heard := 0
	o.Probe.OnFreeze = func(probe.Freeze) { heard++ }
	rec, p := withFlight(&o)
	defer rec.Stop()
	p.OnFreeze(probe.Freeze{Likely: time.Second})
	if got := rec.State().Triggers[flight.KindFreeze]; heard != 1 || got != 1 {
		t.Errorf("of a freeze the recorder heard %d times, the other one %d", got, heard)
	}
	o.Flight = &flight.Options{Slow: -1}
	if rec, _ := withFlight(&o); rec != nil || !strings.Contains(log.String(), "negative") {
		t.Errorf("options that make no sense: %s", &log)
	}
}
