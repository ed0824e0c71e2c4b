package debugz

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

func machine() cgroup.Options {
	return cgroup.Options{FS: fstest.MapFS{
		"proc/self/cgroup":              {Data: []byte("0::/pod/app\n")},
		"proc/self/mountinfo":           {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")},
		"proc/self/status":              {Data: []byte("Cpus_allowed_list:\t0-7\n")},
		"sys/fs/cgroup/cgroup.procs":    {},
		"sys/fs/cgroup/pod/cpu.max":     {Data: []byte("50000 100000\n")},
		"sys/fs/cgroup/pod/app/cpu.max": {Data: []byte("max 100000\n")},
	}}
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
	return w
}

func TestPage(t *testing.T) {
	silent := slog.New(slog.DiscardHandler)
	tuner := tune.Start(tune.Options{Cgroup: machine(), Logger: silent})
	defer tuner.Stop()
	p := probe.Start(probe.Options{})
	defer p.Stop()
	h := Handler(Options{Cgroup: machine(), Tuner: tuner, Probe: p, Level: new(slog.LevelVar)})

	w := get(h, "/debug/limits")
	check.True(t, w.Code == 200 && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain"), "%d %v", w.Code, w.Header())
	for _, want := range []string{"/sys/fs/cgroup/pod/cpu.max", "0.5 CPUs", "* quota", "GOMAXPROCS=1", "freezes", "log level", "to undo", "ancestor-tighter"} {
		check.True(t, strings.Contains(w.Body.String(), want), "the page does not say %q:\n%s", want, w.Body)
	}

	var page page
	w = get(h, "/debug/limits?format=json")
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &page))
	if page.Limits == nil || page.Limits.CPU.Quota != 0.5 || page.Tune == nil || page.Tune.Quota != 0.5 || page.Probe == nil || page.LogLevel != "INFO" {
		t.Errorf("%s", w.Body)
	}
}

func TestNothingToShow(t *testing.T) {
	w := get(Handler(Options{Cgroup: cgroup.Options{FS: fstest.MapFS{}}}), "/")
	check.True(t, w.Code == 200 && strings.Contains(w.Body.String(), "GOMAXPROCS"), "%d\n%s", w.Code, w.Body)
}

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		name, method, body string
		header             map[string]string
		noLevel            bool
		code               int
		level              slog.Level
	}{
		{"debug", "POST", "level=debug", nil, false, 200, slog.LevelDebug},
		{"offset", "POST", "level=INFO-2", nil, false, 200, slog.LevelInfo - 2},
		{"for a while", "POST", "level=debug&for=5m", nil, false, 200, slog.LevelDebug},
		{"for an unknown while", "POST", "level=debug&for=soon", nil, false, 400, slog.LevelWarn},
		{"for too short", "POST", "level=debug&for=1ms", nil, false, 400, slog.LevelWarn},
		{"for too long", "POST", "level=debug&for=999h", nil, false, 400, slog.LevelWarn},
		{"too low", "POST", "level=debug-99999999", nil, false, 400, slog.LevelWarn},
		{"too high", "POST", "level=error%2B5", nil, false, 400, slog.LevelWarn},
		{"unknown", "POST", "level=loud", nil, false, 400, slog.LevelWarn},
		{"none", "POST", "", nil, false, 400, slog.LevelWarn},
		{"broken form", "POST", "level=%zz", nil, false, 400, slog.LevelWarn},
		{"too long", "POST", "level=debug&x=" + strings.Repeat("x", 10000), nil, false, 400, slog.LevelWarn},
		{"no level to change", "POST", "level=debug", nil, true, 501, slog.LevelWarn},
		{"same origin", "POST", "level=debug", map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://example.com"}, false, 200, slog.LevelDebug},
		{"another site", "POST", "level=debug", map[string]string{"Sec-Fetch-Site": "cross-site"}, false, 403, slog.LevelWarn},
		{"another site, old browser", "POST", "level=debug", map[string]string{"Origin": "http://evil.example"}, false, 403, slog.LevelWarn},
		{"other method", "PUT", "level=debug", nil, false, 405, slog.LevelWarn},
		{"GET changes nothing", "GET", "", nil, false, 200, slog.LevelWarn},
	} {
		var level slog.LevelVar
		level.Set(slog.LevelWarn)
		o := Options{Level: &level, Cgroup: machine(), Logger: slog.New(slog.DiscardHandler)}
		if c.noLevel {
			o.Level = nil
		}
		r := httptest.NewRequest(c.method, "http://example.com/debug/limits", strings.NewReader(c.body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for k, v := range c.header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		Handler(o).ServeHTTP(w, r)
		check.True(t, w.Code == c.code && level.Level() == c.level,
			"%s: %d and level %v, want %d and %v: %s", c.name, w.Code, level.Level(), c.code, c.level, w.Body)
	}
}

// otherLogger is a logger with another type of level.
type otherLogger struct{ verbosity int }

func (o *otherLogger) Level() slog.Level    { return slog.Level(-o.verbosity) }
func (o *otherLogger) Set(level slog.Level) { o.verbosity = -int(level) }

// TestLevelExpires tests that a temporary level ends, that each change is logged, and that a
// change before the end wins.
func TestLevelExpires(t *testing.T) {
	var buf bytes.Buffer
	var level slog.LevelVar
	level.Set(slog.LevelWarn)
	l := newLevels(Options{Level: &level, Logger: slog.New(slog.NewJSONHandler(&buf, &slog.HandlerOptions{Level: &level}))})
	var expire []func()
	l.afterFunc = func(d time.Duration, f func()) func() bool {
		expire = append(expire, f)
		return func() bool { return true }
	}
	l.set(slog.LevelDebug, 5*time.Minute, "10.0.0.1")
	if got := l.String(); level.Level() != slog.LevelDebug || !strings.Contains(got, "until") || !strings.HasSuffix(got, "then WARN") {
		t.Errorf("%v: %s", level.Level(), got)
	}
	// A second change for a while keeps what comes back in the end.
	l.set(slog.LevelInfo, time.Minute, "10.0.0.2")
	expire[0]()
	check.Equal(t, level.Level(), slog.LevelInfo, "an overtaken expiry set")
	expire[1]()
	check.True(t, level.Level() == slog.LevelWarn && l.String() == "WARN", "after the expiry: %s", l)
	// The program has changed the level: its value stays.
	l.set(slog.LevelDebug, time.Minute, "10.0.0.1")
	level.Set(slog.LevelError)
	expire[2]()
	check.Equal(t, level.Level(), slog.LevelError, "the program's own level became")
	// For good: nothing comes back.
	l.set(slog.LevelDebug, time.Minute, "10.0.0.1")
	l.set(slog.LevelInfo, 0, "10.0.0.1")
	expire[3]()
	check.True(t, level.Level() == slog.LevelInfo && l.String() == "INFO", "%s", l)
	lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
	check.True(t, len(lines) == 6 && strings.Contains(lines[0], `"from":"WARN","to":"DEBUG","by":"10.0.0.1","for":"5m0s","then":"WARN"`),
		"%d lines:\n%s", len(lines), buf.String())

	otherLevel := &otherLogger{}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", strings.NewReader("level=debug"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	Handler(Options{Level: otherLevel, Logger: slog.New(slog.DiscardHandler), Cgroup: machine()}).ServeHTTP(w, r)
	check.True(t, otherLevel.verbosity == 4, "another logger's verbosity %d: %s", otherLevel.verbosity, w.Body)
}

// TestFlight serves a recorder next to the page, and shows it there.
func TestFlight(t *testing.T) {
	rec := must.Have(flight.Start(flight.Options{Dir: t.TempDir()}))(t)
	defer rec.Stop()
	h := Handler(Options{Flight: rec})
	ask := func(method, target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		return w
	}
	if w := ask("GET", "/debug/limits"); !strings.Contains(w.Body.String(), "flight recorder") || !strings.Contains(w.Body.String(), "budget 2%") {
		t.Errorf("the page is\n%s", w.Body)
	}
	if w := ask("GET", "/debug/limits?format=json"); !strings.Contains(w.Body.String(), `"duty": 1`) {
		t.Errorf("the page is\n%s", w.Body)
	}
	if w := ask("GET", "/debug/flight?state"); w.Code != 200 || !strings.Contains(w.Body.String(), `"triggers"`) && !strings.Contains(w.Body.String(), `"kept"`) {
		t.Errorf("the state is %d %s", w.Code, w.Body)
	}
	if rec.State().Recording {
		if w := ask("GET", "/debug/flight"); w.Code != 200 || !bytes.HasPrefix(w.Body.Bytes(), []byte("PK")) {
			t.Errorf("GET gives %d", w.Code)
		}
		if w := ask("POST", "/debug/flight?reason=x"); w.Code != 200 || rec.State().Kept != 1 {
			t.Errorf("POST gives %d %s", w.Code, w.Body)
		}
	}
	h = Handler(Options{})
	check.Equal(t, ask("GET", "/debug/flight").Code, 404, "without a recorder it answers")
}
