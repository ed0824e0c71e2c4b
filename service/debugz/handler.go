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
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/internal/quantity"
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

// writeText writes the page as text. It ignores errors of the connection, because the
// client is gone.
func (p *page) writeText(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "process\t%d, %s\n", p.PID, p.Go)
	fmt.Fprintf(w, "GOMAXPROCS\t%d", p.GOMAXPROCS)
	if p.Tune != nil {
		fmt.Fprintf(w, ", set by: %s", p.Tune.ProcsBy)
	}
	fmt.Fprintf(w, "\nNumCPU\t%d, as it was at the start\n", p.NumCPU)
	if p.LogLevel != "" {
		fmt.Fprintf(w, "log level\t%s; POST level=debug&for=5m changes it\n", p.LogLevel)
	}
	if p.Error != "" {
		fmt.Fprintf(w, "limits\t%s\n", p.Error)
	}
	if l := p.Limits; l != nil {
		fmt.Fprintf(w, "\nCPU\t%s, cgroup %s\n", numberText(l.CPU.Effective, "CPUs"), l.CPU.Version)
		for _, b := range l.CPU.Bounds {
			fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\n", boundMark(b.Won), b.Kind, numberText(b.CPUs, "CPUs"), b.File, b.Why)
		}
		fmt.Fprintf(w, "\nmemory\t%s, cgroup %s\n", sizeText(l.Memory.Effective), l.Memory.Version)
		for _, b := range l.Memory.Bounds {
			fmt.Fprintf(w, "%s %s\t%s\t%s\t%s\n", boundMark(b.Won), b.Kind, sizeText(b.Bytes), b.File, b.Why)
		}
		for _, n := range l.Notes {
			fmt.Fprintf(w, "note\t%s\n", n)
		}
	}
	if len(p.Traps) > 0 {
		fmt.Fprintf(w, "\ntraps\n")
	}
	for _, t := range p.Traps {
		fmt.Fprintf(w, "%s\t%s: %s\n\tto do: %s\n", t.Code, t.Severity, t.Text, t.Fix)
	}
	if t := p.Tune; t != nil {
		fmt.Fprintf(w, "\nGOGC\t%d, effectively %s; collecting takes %s of the CPU used\n", t.GOGC, numberOrUnknown(t.EffectiveGOGC, func(n float64) string { return fmt.Sprintf("%.0f", n) }), numberOrUnknown(t.GCShare, quantity.Share))
		fmt.Fprintf(w, "headroom\t%s\n", sizeText(t.Headroom))
		fmt.Fprintf(w, "throttled\t%s (%s): own %v, ancestor %v, in %d of %d periods\n", t.Throttled.Verdict, t.Throttled.Evidence, t.Throttled.Own, t.Throttled.Ancestor, t.Throttled.ThrottledPeriods, t.Throttled.Periods)
		for _, e := range t.Events {
			fmt.Fprintf(w, "%s\t%s\n", e.Time.UTC().Format(time.RFC3339), e)
			source := cmp.Or(e.Source, "missing")
			fmt.Fprintf(w, "\tby %s; to undo: %s\n", source, e.Undo)
		}
	}
	if l := p.Probe; l != nil {
		fmt.Fprintf(w, "\nfreezes\t%d since %s: %v in total, p50 %v, max %v\n", l.Freezes, l.Started.UTC().Format(time.RFC3339), l.FreezeTime, l.FreezeP50, l.FreezeMax)
		var byVerdict []string
		for _, v := range cgroup.Verdicts() {
			byVerdict = append(byVerdict, fmt.Sprintf("%s %d", v, l.FreezesByVerdict[string(v)]))
		}
		fmt.Fprintf(w, "by verdict\t%s\n", strings.Join(byVerdict, ", "))
		fmt.Fprintf(w, "quota\t%v own, %v ancestor (CPU time)\n", l.Throttled.Own, l.Throttled.Ancestor)
		fmt.Fprintf(w, "run queue\t%v, and %v perhaps due to the quota\n", l.RunQueue, l.Unsplit)
		fmt.Fprintf(w, "steal\t%v, whole machine\n", l.Steal)
		if len(l.NotMeasurable) > 0 {
			fmt.Fprintf(w, "not measurable\t%s\n", strings.Join(l.NotMeasurable, ", "))
		}
	}
	if s := p.Flight; s != nil {
		writeFlight(w, s)
	}
}

// writeFlight writes the state of a flight recorder.
func writeFlight(w io.Writer, s *flight.State) {
	does := "running"
	if !s.Recording {
		does = "not running: " + s.Why
	}
	fmt.Fprintf(w, "\nflight recorder\t%s\n", does)
	fmt.Fprintf(w, "its cost\t%s of the CPUs by %s", quantity.Cost(s.Cost), s.CostFrom)
	if s.Budget > 0 {
		fmt.Fprintf(w, " (budget %s)", quantity.Share(s.Budget))
	}
	fmt.Fprintf(w, "; the kernel's counters %s\n", quantity.Cost(s.OwnCost))
	fmt.Fprintf(w, "recordings\t%d kept, %s on disk, %d failed\n", s.Kept, sizeText(s.DiskBytes), s.Failed)
	if s.Last != "" {
		fmt.Fprintf(w, "the last\t%s, %s in %v\n", s.Last, sizeText(s.LastBytes), s.LastSnapshot.Round(time.Millisecond))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Triggers)) {
		fmt.Fprintf(w, "%s\t%d moments, %d in no recording\n", k, s.Triggers[k], s.Missed[k])
	}
	if u := s.Upload; u != nil {
		fmt.Fprintf(w, "upload\t%d sent, %d refused, %d failed attempts, %d waiting\n", u.Sent, u.Refused, u.Failed, u.Waiting)
		if u.Held > 0 {
			fmt.Fprintf(w, "held back\t%d: the collector rejects this token\n", u.Held)
		}
		if u.LastError != "" {
			fmt.Fprintf(w, "last upload error\t%s\n", u.LastError)
		}
	}
	if s.Unwatched {
		fmt.Fprintf(w, "marks\tanother watcher takes them: no request is seen\n")
	}
	if s.LastError != "" {
		fmt.Fprintf(w, "last error\t%s\n", s.LastError)
	}
}

// boundMark returns "*" for the tightest bound, which won, and a blank for others.
func boundMark(won bool) string {
	if won {
		return "*"
	}
	return " "
}

// numberText returns a number with its unit, or "-" unless the number is above 0.
func numberText(n float64, unit string) string {
	if n <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g %s", n, unit)
}

// numberOrUnknown formats a number by text, and returns "unknown" for a negative one.
func numberOrUnknown(n float64, text func(float64) string) string {
	if n < 0 {
		return "unknown"
	}
	return text(n)
}

// sizeText returns a number of bytes in binary units, "-" for 0 and "unknown" for a
// negative one.
func sizeText(n int64) string {
	switch {
	case n < 0:
		return "unknown"
	case n == 0:
		return "-"
	}
	return quantity.Binary(n)
}
