package service

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/debugz"
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
	if !strings.Contains(w.Body.String(), "freezes") || !strings.Contains(w.Body.String(), "GOGC") {
		t.Errorf("the page lacks the probe or the tuner:\n%s", w.Body)
	}
	s.Stop()
	s.Stop()
	if s.State().Tune.Time.IsZero() {
		t.Error("no state after Stop")
	}
	if !strings.Contains(buf.String(), "loud") || !strings.Contains(buf.String(), "GOMAXPROCS") {
		t.Errorf("log:\n%s", buf.String())
	}
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
