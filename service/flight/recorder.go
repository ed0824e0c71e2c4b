package flight

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/service/internal/cputime"
	"github.com/whylate/whylate/service/internal/origin"
	"github.com/whylate/whylate/service/internal/quantity"
	"github.com/whylate/whylate/service/internal/tracebatch"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/redact"
)

// A Kind says what made a recording worth keeping.
type Kind string

// The kinds of trigger.
const (
	KindSlow       Kind = "slow"       // a request took longer than Options.Slow
	KindUnusual    Kind = "unusual"    // a request took much longer than its route usually does
	KindMany       Kind = "many"       // a share of requests did
	KindFreeze     Kind = "freeze"     // the kernel did not run the process
	KindLatency    Kind = "latency"    // goroutines wait long to run
	KindGoroutines Kind = "goroutines" // there are many
	KindGC         Kind = "gc"         // garbage collection takes a large share
	KindAsked      Kind = "asked"      // somebody asked
)

// Kinds returns all kinds, for what shows each of them.
func Kinds() []Kind {
	return []Kind{KindSlow, KindUnusual, KindMany, KindFreeze, KindLatency, KindGoroutines, KindGC, KindAsked}
}

// A Trigger is why a recording was kept.
type Trigger struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"` // for people
	// Route and Status are a request's, TookNS how long it took.
	Route  string    `json:"route,omitempty"`
	Status string    `json:"status,omitempty"`
	TookNS int64     `json:"took_ns,omitempty"`
	At     time.Time `json:"at"` // its end
}

// Options configure a recorder. Zero values mean what is said at each.
type Options struct {
	// Dir is where recordings are kept, a folder of this process's own; it is
	// made. Empty means whylate-flight in the system's folder for temporary
	// files, or none if Sink is set.
	Dir string
	// MaxDisk bounds what the recordings in Dir take, in bytes: 256 MiB. The
	// oldest go first, but of each kind of trigger the newest stays.
	MaxDisk int64
	// Sink, if not nil, is given every recording that is kept: its name and the
	// .whylate file. It is called by a goroutine of its own; the next recording is
	// kept when it has returned. ctx ends with Stop, which waits for it for five
	// seconds. An error and a panic are reported in State, and end nothing.
	Sink func(ctx context.Context, name string, recording io.Reader) error

	// Slow makes every marked request slow that takes longer; 0 is none.
	Slow time.Duration
	// Factor makes a marked request slow that takes Factor times as long as 99 of
	// a hundred of its route did in the last minutes, but at least Least; a
	// route counts once a hundred of its requests were seen. 0 means 4; a
	// negative one is none. Least is 10 ms.
	Factor float64
	Least  time.Duration
	// Share triggers where this share of a second's marked requests was slow, by
	// either of the above, and at least ten of them; 0 is none.
	Share float64
	// Latency triggers where one in a hundred goroutines waited longer to run, over
	// a second; Goroutines where there are more; GC where garbage collection
	// took a larger share of the CPU time used. 0 is none.
	Latency    time.Duration
	Goroutines int
	GC         float64
	// Freeze is how long the kernel must not have run the process for OnFreeze to
	// be a trigger: 50 ms. Shorter ones are many on a machine with neighbours.
	Freeze time.Duration

	// Tail is how long what comes after a slow request is recorded: 200 ms, and as
	// long as further triggers come, up to five times that; and then until the marked
	// requests have ended that had begun, for half of MinAge at most, and no longer than
	// the beginning of what was slow is still there.
	Tail time.Duration
	// Gap is how long after a recording the next one of the same class is kept at the
	// earliest, 1 minute: requests, freezes, latency, goroutines and GC are classes.
	Gap time.Duration
	// PerHour and PerDay bound how many recordings are kept, those asked for aside:
	// 6 and 48, of which half are for requests alone. Negative ones are no bound.
	PerHour, PerDay int

	// MinAge is how far back a recording reaches at least, 10 s, and MaxBytes what
	// the recorder may keep in memory, 10 MiB; the runtime takes both as hints,
	// and MaxBytes before MinAge.
	MinAge   time.Duration
	MaxBytes uint64
	// Budget is what the recorder may cost, as a share of the process's CPUs (0.02
	// is 2 %, and what 0 means; a negative one is no bound). Above it for ten
	// seconds the recorder runs for the part of the time that costs as much, or is
	// off where that would be less than a twentieth, until the service is
	// calmer; State says so. How the cost is known is in docs/flight.md.
	Budget float64
	// NoHost leaves the kernel's counters out of the trace.
	NoHost bool

	// Redact says what of a recording's texts is hidden before it is written or
	// handed to anybody. Its Main is found by the build information.
	Redact redact.Options
	// Signals are those that keep a recording, as Capture does: syscall.SIGUSR1.
	Signals []os.Signal
	// Upload, if not nil, sends what is kept in Dir to a collector (NewUploader).
	Upload *UploadOptions
}

func (o *Options) fill() error {
	if o.Slow < 0 || o.Least < 0 || o.Tail < 0 || o.Gap < 0 || o.MinAge < 0 || o.MaxDisk < 0 || o.Goroutines < 0 || o.Latency < 0 || o.Freeze < 0 {
		return errors.New("flight: a bound is negative")
	}
	if o.Share < 0 || o.Share > 1 || o.GC < 0 || o.GC > 1 {
		return errors.New("flight: Share and GC are between 0 and 1")
	}
	if err := o.Redact.Check(); err != nil {
		return err
	}
	if o.Upload != nil && o.Dir == "" && o.Sink != nil {
		return errors.New("flight: Upload needs a Dir beside the Sink")
	}
	if o.Dir == "" && o.Sink == nil {
		o.Dir = filepath.Join(os.TempDir(), "whylate-flight")
	}
	o.MaxDisk = cmp.Or(o.MaxDisk, 256<<20)
	o.Factor = cmp.Or(o.Factor, 4)
	o.Least = cmp.Or(o.Least, 10*time.Millisecond)
	o.Freeze = cmp.Or(o.Freeze, 50*time.Millisecond)
	o.Tail = cmp.Or(o.Tail, 200*time.Millisecond)
	o.Gap = cmp.Or(o.Gap, time.Minute)
	o.PerHour, o.PerDay = cmp.Or(o.PerHour, 6), cmp.Or(o.PerDay, 48)
	o.MinAge = cmp.Or(o.MinAge, 10*time.Second)
	o.MaxBytes = cmp.Or(o.MaxBytes, 10<<20)
	o.Budget = cmp.Or(o.Budget, 0.02)
	return nil
}

// A State says what a recorder does and has done.
type State struct {
	// Recording says that the runtime's recorder runs. If not, Why says why.
	Recording bool   `json:"recording"`
	Why       string `json:"why,omitempty"`
	// Cost is the runtime's recorder's share of the CPUs if it ran all the time,
	// and CostFrom how that is known; it is known, too, while it is off. Budget is
	// what it may cost, 0 without a bound, and Duty the part of the time that it
	// runs for that. Off is for how long it was off because of the budget.
	Cost     float64       `json:"cost"`
	CostFrom string        `json:"cost_from,omitempty"`
	Budget   float64       `json:"budget,omitempty"`
	Duty     float64       `json:"duty"`
	Off      time.Duration `json:"off_ns,omitempty"`
	// BytesPerSecond are what the runtime's recorder writes, when last counted.
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
	// OwnCost is the share of the CPUs that the kernel's counters take: at most
	// 0.15 %, above that they are read less often.
	OwnCost float64 `json:"own_cost"`
	// Reach is how far back a recording reaches, about: MinAge, or less where MaxBytes
	// are written sooner.
	Reach time.Duration `json:"reach_ns"`
	// Triggers counts what was worth a recording, Missed what of that is in none,
	// Kept the recordings.
	Triggers map[Kind]uint64 `json:"triggers,omitempty"`
	Missed   map[Kind]uint64 `json:"missed,omitempty"`
	Kept     uint64          `json:"kept"`
	// Failed counts recordings that could not be written or handed over, and
	// LastError is what went wrong last.
	Failed    uint64 `json:"failed"`
	LastError string `json:"last_error,omitempty"`
	// Last is the last recording's file, LastAt the moment that it was made for,
	// LastBytes its size, LastSnapshot how long the runtime took to hand it out.
	// DiskBytes is what all take.
	Last         string        `json:"last,omitempty"`
	LastAt       time.Time     `json:"last_at,omitzero"`
	LastBytes    int64         `json:"last_bytes,omitempty"`
	LastSnapshot time.Duration `json:"last_snapshot_ns,omitempty"`
	DiskBytes    int64         `json:"disk_bytes"`
	// Unwatched says that marks are watched by somebody else, so that no request
	// is seen here.
	Unwatched bool `json:"unwatched,omitempty"`
	// Upload is what has become of the recordings that are sent, nil where none
	// are.
	Upload *UploadState `json:"upload,omitempty"`
}

// A Recorder keeps recordings of slow moments. Its methods may be called
// concurrently.
type Recorder struct {
	opts    Options
	routes  routes
	facts   *facts
	service map[string]string

	stop      chan struct{}
	once      sync.Once
	done      sync.WaitGroup
	wake      chan struct{}
	ask       chan *asked   // to be kept
	fetch     chan *asked   // to be written to somebody
	sunk      chan struct{} // the sink has returned
	sinking   sync.WaitGroup
	left      chan struct{} // the sink has not, but Stop has
	unwatch   func()
	ctx       context.Context // ends with Stop
	cancelCtx context.CancelFunc
	upload    *Uploader
	ownCost   atomic.Uint64 // bits of a float64
	handing   atomic.Int32  // snapshots that are being fetched

	mu     sync.Mutex
	state  State
	plan   plan
	missed map[Kind]uint64 // to be named in the next recording
	hour   *bucket
	day    *bucket
	posts  *bucket
	seen   uint64 // marked requests of this second
	slow   uint64

	rt    ring // the goroutine's own, as all below
	gov   governor
	rate  float64 // bytes a second, about
	n     int
	began time.Time     // when rt was started
	spent time.Duration // CPU time of the process, when last looked at
	count *counting
}

// A ring is what keeps the last seconds: the runtime's recorder, or one of a test.
type ring interface {
	start(minAge time.Duration, maxBytes uint64) error
	stop()
	enabled() bool
	writeTo(w io.Writer) (int64, error)
}

// counting is a count of the recorder's bytes that has begun.
type counting struct {
	after  uint64 // generation
	at     time.Time
	starts float64 // since
}

// asked is a recording that is to be made. If to is not nil, it is written
// there and not kept.
type asked struct {
	trigger Trigger
	also    []Trigger
	held    map[Kind]uint64 // all triggers of which it was kept; nil where somebody asked
	to      io.Writer
	name    string
	err     error
	done    chan struct{}
}

// Start starts a recorder. The error says which option makes no sense; that
// nothing can be recorded, or written, is no error but State's.
func Start(opts Options) (*Recorder, error) { return startWith(opts, newRing()) }

func startWith(opts Options, rt ring) (*Recorder, error) {
	if err := opts.fill(); err != nil {
		return nil, err
	}
	now := time.Now()
	r := &Recorder{
		opts: opts, facts: readFacts(), service: describe(os.Getenv),
		stop: make(chan struct{}), wake: make(chan struct{}, 1), ask: make(chan *asked), fetch: make(chan *asked), sunk: make(chan struct{}, 1), left: make(chan struct{}),
		missed: make(map[Kind]uint64), hour: newBucket(opts.PerHour, time.Hour, now), day: newBucket(opts.PerDay, 24*time.Hour, now), posts: newBucket(postsPerMinute, time.Minute, now),
		gov: newGovernor(opts.Budget, opts.MinAge), rt: rt,
		plan: plan{tail: opts.Tail, gap: opts.Gap, minAge: opts.MinAge, reach: opts.MinAge},
	}
	r.opts.Redact = r.opts.Redact.WithKey()
	if r.opts.Redact.Main == "" {
		if b, ok := debug.ReadBuildInfo(); ok {
			r.opts.Redact.Main = b.Path
		}
	}
	r.state.Triggers, r.state.Missed = make(map[Kind]uint64), make(map[Kind]uint64)
	r.state.Budget, r.state.Duty, r.state.CostFrom, r.state.Reach = max(0, opts.Budget), 1, r.gov.how, opts.MinAge
	r.ctx, r.cancelCtx = context.WithCancel(context.Background())
	if !supported {
		r.state.Why = "built with a Go version before 1.25, which has no flight recorder"
		return r, nil
	}
	if opts.Dir != "" {
		if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
			r.state.LastError = err.Error()
		} else {
			removeParts(opts.Dir, os.Getpid(), alive, now)
			r.state.DiskBytes, _ = tidy(opts.Dir, opts.MaxDisk, "")
			r.recall(now)
		}
	}
	if opts.Upload != nil {
		var err error
		if r.upload, err = NewUploader(opts.Dir, *opts.Upload); err != nil {
			r.cancelCtx()
			return nil, err
		}
	}
	var watched bool
	r.unwatch, watched = mark.Watch(r.ended)
	r.state.Unwatched = !watched
	r.begin()
	r.done.Add(1)
	go r.run()
	if len(opts.Signals) > 0 {
		r.done.Add(1)
		go r.onSignals(notify(opts.Signals))
	}
	if !opts.NoHost {
		r.done.Add(1)
		go r.logHost()
	}
	return r, nil
}

// recall takes in the recordings that an earlier process has kept.
func (r *Recorder) recall(now time.Time) {
	files, _ := list(r.opts.Dir) // tidy has said what is wrong
	var kept []time.Time
	for _, f := range files {
		if kindOf(f.name) != KindAsked {
			kept = append(kept, f.mod)
		}
	}
	r.hour.recall(kept, now)
	r.day.recall(kept, now)
}

// sinkPatience is for how long Stop waits for a sink.
const sinkPatience = 5 * time.Second

// Stop stops the recorder and waits for its goroutines. A recording that is
// being written is finished. A Sink that does not return within five seconds is left
// alone.
func (r *Recorder) Stop() {
	r.once.Do(func() {
		close(r.stop)
		r.cancelCtx()
		if r.unwatch != nil {
			r.unwatch()
		}
		r.done.Wait()
		sunk := make(chan struct{})
		go func() { r.sinking.Wait(); close(sunk) }()
		patience := time.NewTimer(sinkPatience)
		defer patience.Stop()
		select {
		case <-sunk:
		case <-patience.C:
			close(r.left)
		}
	})
	r.done.Wait()
	if r.upload != nil {
		r.upload.Stop()
	}
}

// State returns what the recorder does and has done.
func (r *Recorder) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Triggers, s.Missed = maps.Clone(s.Triggers), maps.Clone(s.Missed)
	s.OwnCost = math.Float64frombits(r.ownCost.Load())
	if r.upload != nil {
		u := r.upload.State()
		s.Upload = &u
	}
	return s
}

// ended sees every marked request, on its own goroutine.
func (r *Recorder) ended(e mark.Ended) {
	slow := r.opts.Slow > 0 && e.Took > r.opts.Slow
	unusual := false
	limit := r.opts.Slow
	if r.opts.Factor > 0 {
		if rt := r.routes.of(e.Name); rt != nil {
			if unusual = rt.add(e.Took); unusual && !slow {
				limit = time.Duration(rt.limit.Load())
			}
		}
	}
	if !slow && !unusual && r.opts.Share == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	if !slow && !unusual {
		return
	}
	r.slow++
	kind := KindSlow
	if !slow {
		kind = KindUnusual
	}
	at := e.Began.Add(e.Took)
	if e.Began.IsZero() {
		at = time.Now()
	}
	r.fire(moment{kind: kind, at: at, took: e.Took, name: e.Name, status: e.Status, limit: limit})
}

// OnFreeze triggers a recording of a freeze of at least Options.Freeze: give it to
// probe.Options.
func (r *Recorder) OnFreeze(f probe.Freeze) {
	if f.Likely < r.opts.Freeze {
		return
	}
	text := fmt.Sprintf("the kernel did not run the process for about %v", f.Likely.Round(time.Millisecond))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fire(moment{kind: KindFreeze, at: time.Now(), took: f.Likely, text: text})
}

// fire takes a trigger, with r.mu held.
func (r *Recorder) fire(m moment) {
	r.state.Triggers[m.kind]++
	waited, due := len(r.plan.waiting) > 0, r.plan.due
	if !r.state.Recording || !waited && !r.free(m.kind, m.at) || !r.plan.add(m, m.at) {
		r.missed[m.kind]++
		r.state.Missed[m.kind]++
		return
	}
	if !waited || r.plan.due != due {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// free reports whether one more recording may be kept, with r.mu held. Half of
// them are for requests: a machine with neighbours that freeze the process all day
// has some left for what people wait for.
func (r *Recorder) free(k Kind, now time.Time) bool {
	own := classOf(k) == classRequests
	hour, day := r.hour.has(now, own), r.day.has(now, own)
	return hour && day
}

// Capture keeps a recording at once, whatever the bounds on their number, and
// returns its name. It waits until the recording is written.
func (r *Recorder) Capture(ctx context.Context, reason string) (name string, err error) {
	a := &asked{trigger: Trigger{Kind: KindAsked, Text: reason, At: time.Now()}, done: make(chan struct{})}
	if err := r.request(ctx, a); err != nil {
		return "", err
	}
	return a.name, a.err
}

func (r *Recorder) request(ctx context.Context, a *asked) error {
	if !supported {
		return errors.New("flight: " + r.State().Why)
	}
	to := r.ask
	if a.to != nil {
		to = r.fetch
	}
	select {
	case to <- a:
	case <-ctx.Done():
		return ctx.Err()
	case <-r.stop:
		return errors.New("flight: the recorder was stopped")
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.left:
		return errors.New("flight: the recorder was stopped, and the sink has not returned")
	}
}

// ServeHTTP answers GET with what was recorded until now, as a .whylate file,
// and POST by keeping it where all are kept (with the form's value reason), ten
// times a minute at most; GET with the query value state gives the State. It is on no mux by itself, and
// a recording tells much of a service: serve it where net/http/pprof is.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodGet && q.URL.Query().Has("state") {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.State()) // the client is gone
		return
	}
	switch q.Method {
	case http.MethodPost:
		if origin.Other(q) {
			http.Error(w, "keeping a recording from another site's page is not allowed", http.StatusForbidden)
			return
		}
		if wait := r.post(time.Now()); wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			http.Error(w, "too many recordings were requested", http.StatusTooManyRequests)
			return
		}
		q.Body = http.MaxBytesReader(w, q.Body, 4<<10)
		name, err := r.Capture(q.Context(), cmp.Or(clip(q.FormValue("reason")), "requested over HTTP"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, name)
	case http.MethodGet:
		// Who reads slowly holds the whole recording.
		if r.handing.Add(1) > maxHanding {
			r.handing.Add(-1)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "several requests already fetch one", http.StatusServiceUnavailable)
			return
		}
		defer r.handing.Add(-1)
		var b bytes.Buffer
		a := &asked{trigger: Trigger{Kind: KindAsked, Text: "requested over HTTP", At: time.Now()}, to: &b, done: make(chan struct{})}
		err := r.request(q.Context(), a)
		if err == nil {
			err = a.err
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.whylate.recording+zip")
		w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
		w.Header().Set("Content-Disposition", `attachment; filename="`+a.name+`"`)
		_, _ = w.Write(b.Bytes()) // the client is gone
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "GET or POST", http.StatusMethodNotAllowed)
	}
}

// postsPerMinute is how many recordings may be asked for over HTTP.
const postsPerMinute = 10

// post takes in that a recording is asked for over HTTP, and returns for how long
// that is not allowed.
func (r *Recorder) post(now time.Time) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.posts.has(now, true) {
		return r.posts.wait()
	}
	r.posts.take()
	return 0
}

// maxHanding is how many snapshots may be fetched at once.
const maxHanding = 4

func clip(s string) string {
	if len(s) > 300 {
		s = s[:300]
	}
	return strings.ToValidUTF8(s, "?")
}

// begin starts the runtime's recorder, if it does not run and may.
func (r *Recorder) begin() {
	if r.rt.enabled() {
		return
	}
	err := r.rt.start(r.opts.MinAge, r.opts.MaxBytes)
	r.began = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Recording, r.state.Why = err == nil, ""
	if err != nil {
		r.state.Why = err.Error() + "; it is tried again"
	}
}

func (r *Recorder) end(why string) {
	r.rt.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Recording, r.state.Why = false, why
	r.lose(r.plan.drop()) // their seconds are gone
}

// lose counts triggers that no recording holds, with r.mu held.
func (r *Recorder) lose(counts map[Kind]uint64) {
	for k, n := range counts {
		r.missed[k] += n
		r.state.Missed[k] += n
	}
}

// run is the recorder's goroutine.
func (r *Recorder) run() {
	defer r.done.Done()
	defer r.end("stopped")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	signals := newSignalReader()
	signals.read(time.Now())
	r.spent, _ = cputime.Process()
	next := time.NewTimer(0)
	defer next.Stop()
	sinking := false
	for n := 0; ; {
		ask := r.ask
		if sinking {
			ask = nil // one after the other
		}
		select {
		case <-r.stop:
			return
		case a := <-r.fetch:
			r.capture(a)
		case a := <-ask:
			sinking = r.capture(a)
		case <-r.sunk:
			sinking = r.step(next)
		case <-r.wake:
			if !sinking {
				sinking = r.step(next)
			}
		case <-next.C:
			if !sinking {
				sinking = r.step(next)
			}
		case now := <-tick.C:
			n++
			r.second(n, signals.read(now))
		}
	}
}

// step goes on with what waits for a snapshot, and says by the timer when to come
// again. It reports whether the sink has one now.
func (r *Recorder) step(next *time.Timer) (sinking bool) {
	r.mu.Lock()
	now := time.Now()
	wait := r.plan.step(now, mark.Open)
	if wait != 0 {
		r.mu.Unlock()
		if wait > 0 {
			next.Reset(wait)
		}
		return false
	}
	why, also, held := r.plan.take(now)
	r.hour.take()
	r.day.take()
	r.mu.Unlock()
	a := &asked{trigger: why.trigger(&r.opts.Redact), held: held, done: make(chan struct{})}
	for i := range also {
		a.also = append(a.also, also[i].trigger(&r.opts.Redact))
	}
	return r.capture(a)
}

func (r *Recorder) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.stop:
		return false
	}
}

// govern lets the runtime's recorder run as its budget allows.
func (r *Recorder) govern(n int, s signals) {
	cpu := time.Duration(-1)
	if spent, ok := cputime.Process(); ok {
		cpu, r.spent = spent-r.spent, spent
	}
	r.weigh(n, s)
	if r.gov.decide(s.took, s.starts, runtime.GOMAXPROCS(0), cpu) {
		r.begin()
	} else {
		if r.rt.enabled() {
			r.end("") // the reason is below
		}
		r.count = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &r.gov
	r.state.Cost, r.state.CostFrom, r.state.Duty = g.cost, g.how, g.share
	if g.runs {
		return
	}
	r.state.Off += s.took
	r.state.Why = fmt.Sprintf("paused: it would cost about %s of the CPUs, more than %s", quantity.Share(g.cost), quantity.Share(r.opts.Budget))
	if g.share > 0 {
		r.state.Why += fmt.Sprintf(", so it runs %s of the time", quantity.Percent(g.share))
	}
}

// The recorder's bytes are counted over so many seconds, at first soon and then
// once a minute: each look costs as much as the end of a generation, of which
// there is one a second anyway.
const (
	countFor   = 3
	countEvery = 60
)

// weigh counts the bytes that the runtime's recorder writes.
func (r *Recorder) weigh(n int, s signals) {
	if !r.rt.enabled() {
		return
	}
	if c := r.count; c == nil {
		if s.starts > leastStarts/countFor && (n%countEvery == 2 || r.gov.how == costByStarts && n%10 == 2) {
			if c, ok := r.look(counter{}); ok {
				r.count = &counting{after: c.last, at: time.Now()}
			}
		}
		return
	}
	r.count.starts += s.starts
	if n%10 != 2+countFor {
		return
	}
	if c, ok := r.look(counter{after: r.count.after}); ok {
		r.gov.wrote(c.rate(), r.count.starts)
		r.mu.Lock()
		r.state.BytesPerSecond = c.rate() / time.Since(r.count.at).Seconds()
		r.mu.Unlock()
	}
	r.count = nil
}

func (r *Recorder) look(c counter) (counter, bool) {
	c.head = tracebatch.HeaderLen
	_, err := r.rt.writeTo(&c)
	return c, err == nil
}

// second looks at what one second has shown.
func (r *Recorder) second(n int, s signals) {
	r.govern(n, s)
	if n%60 == 0 {
		r.routes.each((*route).rotate)
	}
	if n%5 == 0 {
		r.routes.each(func(x *route) { x.settle(0.99, r.opts.Factor, r.opts.Least) })
	}
	r.rate += (s.starts/max(s.took.Seconds(), 1e-3)*r.gov.perStart - r.rate) / 5
	reach := r.opts.MinAge
	if full := float64(r.opts.MaxBytes) / max(r.rate, 1); full < reach.Seconds() {
		reach = time.Duration(full * float64(time.Second))
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan.reach, r.state.Reach = reach, reach
	const enough = 10
	if seen, slow := r.seen, r.slow; r.opts.Share > 0 && slow >= enough && float64(slow) >= r.opts.Share*float64(seen) {
		r.fire(moment{kind: KindMany, at: now, text: fmt.Sprintf("%d of %d requests in one second were slow", slow, seen)})
	}
	r.seen, r.slow = 0, 0
	if o := &r.opts; o.Latency > 0 && s.late > o.Latency {
		r.fire(moment{kind: KindLatency, at: now, took: s.late, text: fmt.Sprintf("one in a hundred goroutines waited at least %v for a P, longer than %v", s.late, o.Latency)})
	}
	if o := &r.opts; o.Goroutines > 0 && s.goroutines > uint64(o.Goroutines) {
		r.fire(moment{kind: KindGoroutines, at: now, text: fmt.Sprintf("the process has %d goroutines, more than %d", s.goroutines, o.Goroutines)})
	}
	if o := &r.opts; o.GC > 0 && s.gc > o.GC {
		r.fire(moment{kind: KindGC, at: now, text: fmt.Sprintf("garbage collection took %s of the CPU time, more than %s", quantity.Percent(s.gc), quantity.Percent(o.GC))})
	}
}

// capture takes a snapshot and keeps it. It reports whether the sink has it now.
func (r *Recorder) capture(a *asked) (sinking bool) {
	defer func() {
		if !sinking {
			close(a.done)
		}
	}()
	if !r.rt.enabled() {
		a.err = errors.New("flight: nothing is recorded: " + r.State().Why)
		r.mu.Lock()
		r.lose(a.held)
		r.mu.Unlock()
		return false
	}
	r.n++
	a.name = fileName(a.trigger.At, a.trigger.Kind, os.Getpid(), r.n)
	r.mu.Lock()
	missed := maps.Clone(r.missed) // triggers go on while it is written down
	if a.to == nil {
		r.missed = make(map[Kind]uint64)
	}
	r.mu.Unlock()
	age := min(time.Since(r.began), r.opts.MinAge)
	m := &meta{
		Start: time.Now().Add(-age), AskedNS: int64(r.opts.MinAge), WindowNS: int64(r.opts.MinAge), GotNS: int64(age), Go: runtime.Version(), Host: r.facts,
		Flight: flightMeta{Reason: a.trigger, Also: a.also, Held: a.held, Missed: missed, Service: r.service},
	}
	write := func(w io.Writer) error {
		return writeBundle(w, m, func(w io.Writer) error {
			if !r.opts.Redact.Hides() {
				_, err := r.rt.writeTo(w)
				return err
			}
			hide := redact.NewWriter(w, r.opts.Redact)
			if _, err := r.rt.writeTo(hide); err != nil {
				return err
			}
			return hide.Close()
		})
	}
	if a.to != nil {
		a.err = write(a.to)
		return false
	}
	size, made, err := r.keep(a.name, write)
	// Where nothing is handed on, or it came to nothing, that is all.
	finish := func(err error) {
		a.err = err
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.state.Failed++
			r.state.LastError = err.Error()
			for k, n := range missed { // to be named in the next
				r.missed[k] += n
			}
			r.lose(a.held)
			return
		}
		r.state.Kept++
		r.state.Last, r.state.LastAt, r.state.LastBytes, r.state.LastSnapshot = a.name, a.trigger.At, size, time.Duration(m.Flight.SnapshotNS)
	}
	if err != nil || r.opts.Sink == nil {
		finish(err)
		return false
	}
	r.sinking.Add(1)
	go func() {
		err := errors.New("flight: the sink ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("flight: the sink panicked: %s", clip(fmt.Sprint(p)))
			}
			if c, ok := made.(io.Closer); ok {
				_ = c.Close() // it was read
			}
			finish(err)
			close(a.done)
			r.sunk <- struct{}{}
			r.sinking.Done()
		}()
		err = r.opts.Sink(r.ctx, a.name, made)
	}()
	return true
}

// keep writes a recording into the directory, or into memory where there is none, and
// opens it for the sink.
func (r *Recorder) keep(name string, write func(io.Writer) error) (size int64, made io.Reader, err error) {
	if r.opts.Dir == "" {
		var b bytes.Buffer
		err := write(&b)
		return int64(b.Len()), &b, err
	}
	put := func() error {
		if err := os.MkdirAll(r.opts.Dir, 0o700); err != nil {
			return err
		}
		return atomically(r.opts.Dir, name, os.Getpid(), func(f *os.File) error {
			err := write(f)
			if info, serr := f.Stat(); serr == nil {
				size = info.Size()
			}
			return err
		})
	}
	if err = put(); isFull(err) && makeRoom(r.opts.Dir) {
		err = put()
	}
	if err != nil {
		return 0, nil, err
	}
	left, err := tidy(r.opts.Dir, r.opts.MaxDisk, name)
	r.mu.Lock()
	if r.state.DiskBytes = left; err != nil {
		r.state.LastError = err.Error() // it is kept all the same
	}
	r.mu.Unlock()
	if r.opts.Sink == nil {
		return size, nil, nil
	}
	made, err = os.Open(filepath.Join(r.opts.Dir, name))
	return size, made, err
}

// logHost writes the kernel's counters into the trace.
func (r *Recorder) logHost() {
	defer r.done.Done()
	h := newHostLogger(r.facts)
	if h == nil {
		return
	}
	defer h.close()
	var pace pace
	for wait := hostEvery; r.sleep(wait); {
		// The goroutine is locked to its thread for as long as that thread's clock is
		// read.
		runtime.LockOSThread()
		before, known := cputime.Thread()
		h.log()
		after, _ := cputime.Thread()
		runtime.UnlockOSThread()
		if !known {
			before, after = 0, guessedSample
		}
		procs := runtime.GOMAXPROCS(0)
		wait = pace.next(after-before, procs, h.idle)
		r.ownCost.Store(math.Float64bits(pace.cost(wait, procs)))
	}
}

// onSignals keeps a recording for each signal, those aside that come while one is
// being taken.
func (r *Recorder) onSignals(c chan os.Signal) {
	defer r.done.Done()
	defer signal.Stop(c)
	for {
		select {
		case <-r.stop:
			return
		case s := <-c:
			_, _ = r.Capture(r.ctx, "signal: "+s.String()) // State says what went wrong
		}
	}
}

func notify(signals []os.Signal) chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	return c
}

// describe says which program this is and where it runs: its build information,
// OpenTelemetry's resource variables, and those of Kubernetes' downward API by
// their usual names.
func describe(env func(string) string) map[string]string {
	out := map[string]string{"go": runtime.Version(), "gomaxprocs": strconv.Itoa(runtime.GOMAXPROCS(0)), "pid": strconv.Itoa(os.Getpid())}
	put := func(key, value string) {
		if value != "" {
			out[key] = clip(value)
		}
	}
	if b, ok := debug.ReadBuildInfo(); ok {
		put("module", b.Main.Path)
		put("version", b.Main.Version)
		for _, s := range b.Settings {
			switch s.Key {
			case "vcs.revision":
				put("revision", s.Value)
			case "vcs.modified":
				put("modified", s.Value)
			}
		}
	}
	for _, pair := range strings.Split(env("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch key {
		case "service.name", "service.version", "service.namespace", "service.instance.id", "deployment.environment.name", "k8s.pod.name", "k8s.node.name", "k8s.namespace.name", "host.name":
			if ok {
				put(key, value)
			}
		}
	}
	put("service.name", env("OTEL_SERVICE_NAME"))
	for _, v := range [][2]string{{"k8s.pod.name", "POD_NAME"}, {"k8s.node.name", "NODE_NAME"}, {"k8s.namespace.name", "POD_NAMESPACE"}} {
		if out[v[0]] == "" {
			put(v[0], env(v[1]))
		}
	}
	if out["host.name"] == "" {
		name, _ := os.Hostname()
		put("host.name", name)
	}
	return out
}
