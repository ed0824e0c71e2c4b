// Package debugz is an HTTP handler for operators. It shows the process's limits with
// their files, the tuner's decisions, and the probe's measurements. It also changes
// the level of the program's log while the program runs.
//
//	var level slog.LevelVar
//	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: &level})))
//	mux.Handle("/debug/limits", debugz.Handler(debugz.Options{Level: &level}))
//
//	curl localhost:6060/debug/limits                    # the page
//	curl localhost:6060/debug/limits?format=json
//	curl -d level=debug localhost:6060/debug/limits     # DEBUG from now on
//	curl -d 'level=debug&for=5m' localhost:6060/debug/limits
//
// On a path that ends in /flight the handler serves Options.Flight, a recorder of
// service/flight:
//
//	mux.Handle("/debug/flight", handler)                # the same handler
//
//	whylate record --flight localhost:6060              # the last seconds
//	curl -d reason='it hangs' localhost:6060/debug/flight   # keeps them
//	curl localhost:6060/debug/flight?state
//
// The package registers itself on no mux. The page shows paths of the host, and a
// log level can be costly: serve it only where you would serve net/http/pprof.
package debugz

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/traps"
	"github.com/whylate/whylate/service/tune"
)

// Options configure the handler. The zero value shows the limits.
type Options struct {
	// Level is the program's log level, which POST level=LEVEL changes; nil refuses
	// that.
	Level Level
	// Logger logs each change of level; nil is slog.Default at the time of the change.
	Logger *slog.Logger
	// Tuner, if not nil, adds its decisions.
	Tuner *tune.Tuner
	// Probe, if not nil, adds freezes and lost time.
	Probe *probe.Probe
	// Flight, if not nil, adds the recorder's state, and is served on paths that end in
	// /flight.
	Flight *flight.Recorder
	// Cgroup selects the process whose limits are read; the zero value is this process.
	Cgroup cgroup.Options
}

// page is the content of the page, and its JSON form.
type page struct {
	PID        int            `json:"pid"`
	Go         string         `json:"go"`
	GOMAXPROCS int            `json:"gomaxprocs"`
	NumCPU     int            `json:"num_cpu"`
	LogLevel   string         `json:"log_level,omitempty"`
	Error      string         `json:"error,omitempty"`
	Limits     *cgroup.Limits `json:"limits,omitempty"`
	Traps      []traps.Trap   `json:"traps"`
	Tune       *tune.State    `json:"tune,omitempty"`
	Probe      *probeSummary  `json:"probe,omitempty"`
	Flight     *flight.State  `json:"flight,omitempty"`
}

// probeSummary is a probe's snapshot in a few numbers.
type probeSummary struct {
	Started          time.Time         `json:"since"`
	Freezes          uint64            `json:"freezes"`
	FreezesByVerdict map[string]uint64 `json:"freezes_by_verdict"`
	FreezeTime       time.Duration     `json:"freeze_ns"`
	FreezeP50        time.Duration     `json:"freeze_p50_ns"`
	FreezeMax        time.Duration     `json:"freeze_max_ns"`
	FreezeCPU        time.Duration     `json:"freeze_cpu_ns"`
	Throttled        cgroup.Throttling `json:"throttled"`
	RunQueue         time.Duration     `json:"run_queue_ns"`
	Unsplit          time.Duration     `json:"unsplit_ns"`
	Steal            time.Duration     `json:"steal_ns"`
	LatenessP99      time.Duration     `json:"lateness_p99_ns"`
	NotMeasurable    []string          `json:"not_measurable,omitempty"`
	IntervalBetween  time.Duration     `json:"interval_ns"`
}

// Handler returns the handler. GET and HEAD show the page, as text or with
// format=json as JSON; POST with level=LEVEL (debug, info, warn, error, also
// with an offset as in debug-4) sets the log level, with for=DURATION for a
// while, and logs it. POST from a page of another site is refused.
func Handler(opts Options) http.Handler {
	return &handler{opts: opts, levels: newLevels(opts)}
}

type handler struct {
	opts   Options
	levels *levelChanger
}

var noContext = context.Background()

// ServeHTTP shows the page (GET, HEAD), changes the log level (POST), and passes requests
// for a path that ends in /flight to Options.Flight.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if strings.HasSuffix(r.URL.Path, "/flight") {
		if h.opts.Flight == nil {
			http.Error(w, "this program gave the handler no flight recorder (debugz.Options.Flight)", http.StatusNotFound)
			return
		}
		h.opts.Flight.ServeHTTP(w, r)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.servePage(w, r)
	case http.MethodPost:
		h.serveChange(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "use GET to see the limits, POST level=debug to change the log level", http.StatusMethodNotAllowed)
	}
}

// servePage writes the page as text or JSON.
func (h *handler) servePage(w http.ResponseWriter, r *http.Request) {
	p := h.page()
	if r.URL.Query().Get("format") == "json" {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(p)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	p.writeText(w)
}

// page reads the limits and the components' states. A component that the options do not have is nil.
func (h *handler) page() page {
	p := page{PID: os.Getpid(), Go: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0), NumCPU: runtime.NumCPU()}
	if h.opts.Level != nil {
		p.LogLevel = h.levels.String()
	}
	if l, err := cgroup.Read(h.opts.Cgroup); err != nil {
		p.Error = err.Error()
	} else {
		p.Limits = l
	}
	if h.opts.Tuner != nil {
		s := h.opts.Tuner.State()
		s.Limits = nil // as above, a moment older
		p.Tune = &s
	}
	p.Traps = traps.Find(gatherFacts(h.opts.Cgroup, p.Limits, p.Tune))
	if p.Traps == nil {
		p.Traps = []traps.Trap{} // [] rather than null
	}
	if h.opts.Probe != nil {
		p.Probe = summarize(h.opts.Probe)
	}
	if h.opts.Flight != nil {
		s := h.opts.Flight.State()
		p.Flight = &s
	}
	return p
}

// summarize returns a summary of a probe's snapshot.
func summarize(p *probe.Probe) *probeSummary {
	var s probe.Snapshot
	p.Snapshot(&s)
	l := &probeSummary{
		Started: s.Started.UTC(), Freezes: s.Freezes.Count, FreezesByVerdict: map[string]uint64{},
		FreezeTime: s.FreezeTime, FreezeP50: s.Freezes.Quantile(0.5), FreezeMax: s.Freezes.Max, FreezeCPU: s.FreezeCPU,
		Throttled: s.Throttled, RunQueue: s.RunQueue, Unsplit: s.Unsplit, Steal: s.Steal,
		LatenessP99: s.Lateness.Quantile(0.99), IntervalBetween: s.Interval,
	}
	for _, v := range cgroup.Verdicts() {
		l.FreezesByVerdict[string(v)] = s.FreezesBy(v).Count
	}
	for _, f := range []struct {
		field probe.Fields
		name  string
	}{{probe.HasFreezes, "freezes"}, {probe.HasThrottling, "throttled time"}, {probe.HasRunQueue, "run queue"}, {probe.HasSteal, "steal"}} {
		if s.Has&f.field == 0 {
			l.NotMeasurable = append(l.NotMeasurable, f.name)
		}
	}
	return l
}
