//go:build go1.25

package flight

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"encoding/json"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/probe"
)

// A fakeRing records when snapshots were written.
type fakeRing struct {
	mu        sync.Mutex
	running   bool
	busy      bool
	writtenAt []time.Time
}

func (f *fakeRing) start(time.Duration, uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy {
		return errors.New("already enabled")
	}
	f.running = true
	return nil
}

func (f *fakeRing) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = false
}

func (f *fakeRing) enabled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

// setBusy simulates that another flight recorder runs in the process.
func (f *fakeRing) setBusy(busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy = busy
	f.running = f.running && !busy
}

func (f *fakeRing) writeTo(w io.Writer) (int64, error) {
	if _, ok := w.(*byteCounter); ok {
		return 0, nil // countBytes, which a simulated second with much work causes
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writtenAt = append(f.writtenAt, time.Now())
	n, err := io.WriteString(w, "go 1.26 trace\x00\x00\x00")
	return int64(n), err
}

// A scenario is a recorder in a synctest bubble. Requests are slow from 20 ms on. Times are
// relative to origin.
type scenario struct {
	t          *testing.T
	recorder   *Recorder
	ring       *fakeRing
	dir        string
	origin     time.Time
	goroutines sync.WaitGroup
}

func runScenario(t *testing.T, opts Options, f func(s *scenario)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		opts.Dir, opts.Budget, opts.NoHost, opts.Factor, opts.Slow = dir, -1, true, -1, 20*time.Millisecond
		s := &scenario{t: t, ring: new(fakeRing), dir: dir}
		var err error
		if s.recorder, err = startWith(opts, s.ring); err != nil {
			t.Fatal(err)
		}
		defer s.recorder.Stop()
		s.origin = time.Now().Add(20 * time.Second)
		f(s)
		s.goroutines.Wait()
	})
}

// request runs a marked request between two times.
func (s *scenario) request(name string, from, to time.Duration) {
	s.goroutines.Go(func() {
		time.Sleep(time.Until(s.origin.Add(from)))
		m := mark.Begin(mark.HTTP, name, "")
		time.Sleep(time.Until(s.origin.Add(to)))
		m.End("", "2xx")
	})
}

func (s *scenario) freeze(start, duration time.Duration) {
	s.goroutines.Go(func() {
		time.Sleep(time.Until(s.origin.Add(start)))
		s.recorder.OnFreeze(probe.Freeze{Likely: duration})
	})
}

// A keptRecording is a recording's metadata and the time of its snapshot.
type keptRecording struct {
	takenAt time.Duration
	flightMeta
}

// recordingsAfter waits until the time d and returns the recordings so far.
// recordingsAfter waits until the time d and returns the recordings so far.
func (s *scenario) recordingsAfter(d time.Duration) (recordings []keptRecording) {
	s.t.Helper()
	time.Sleep(time.Until(s.origin.Add(d)))
	synctest.Wait()
	names, _ := filepath.Glob(filepath.Join(s.dir, "*.whylate"))
	if len(names) != len(s.ring.writtenAt) {
		s.t.Fatalf("%d snapshots gave %d files", len(s.ring.writtenAt), len(names))
	}
	for _, name := range names {
		data := must.Have(os.ReadFile(name))(s.t)
		var m recordingMeta
		must.Do(s.t, json.Unmarshal(zipEntries(s.t, data)["meta.json"], &m))
		recordings = append(recordings, keptRecording{flightMeta: m.Flight})
	}
	// The names are in the order of time.
	for i := range recordings {
		recordings[i].takenAt = s.ring.writtenAt[i].Sub(s.origin)
	}
	return recordings
}

const ms = time.Millisecond

// TestFreezeBeforeRequest has a freeze shortly before slow requests: one recording holds both
// and names a request as its reason. Earlier, the snapshot was taken 200 ms after the
// freeze, without the requests, and their triggers fell into its gap.
func TestFreezeBeforeRequest(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		s.freeze(0, 92*ms)
		for i := range 5 {
			s.request("GET /order", time.Duration(i*30)*ms, 310*ms)
		}
		got := s.recordingsAfter(50 * time.Second)
		must.True(s.t, len(got) == 1 && got[0].takenAt >= 310*ms && got[0].takenAt <= 700*ms, "recordings %+v", got)
		if g := got[0]; g.Reason.Kind != KindSlow || g.Reason.TookNS != int64(310*ms) || len(g.OtherTriggers) != 1 || g.OtherTriggers[0].Kind != KindFreeze || !maps.Equal(g.HeldCounts, map[Kind]uint64{KindSlow: 5, KindFreeze: 1}) {
			s.t.Errorf("it says %+v", g)
		}
		if st := s.recorder.State(); len(st.Missed) != 0 || st.Kept != 1 {
			s.t.Errorf("the state is %+v", st)
		}
	})
}

// TestSnapshotWaitsForOpenRequests has a short slow request, while others of the same fault
// continue for longer than the tail: the recording holds them to their end.
func TestSnapshotWaitsForOpenRequests(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		s.request("GET /list", 0, 30*ms)
		s.request("GET /list", 10*ms, 1400*ms)
		s.request("GET /order", 50*ms, 1700*ms)
		got := s.recordingsAfter(50 * time.Second)
		if len(got) != 1 || got[0].takenAt < 1700*ms || got[0].Reason.Route != "GET /order" || got[0].Reason.TookNS != int64(1650*ms) || got[0].HeldCounts[KindSlow] != 3 {
			s.t.Fatalf("recordings %+v", got)
		}
	})
}

// TestStreams has requests that do not end: the snapshot does not wait for a request that began
// before the ring's contents, and for other requests it waits at most MinAge/2.
func TestStreams(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		s.request("stream", -19*time.Second, 50*time.Second)
		s.request("GET /list", 0, 30*ms)
		if got := s.recordingsAfter(40 * time.Second); len(got) != 1 || got[0].takenAt != 230*ms {
			s.t.Fatalf("with a stream: recordings %+v", got)
		}
	})
	runScenario(t, Options{}, func(s *scenario) {
		s.request("poll", 0, 30*time.Second)
		s.request("GET /list", 0, 30*ms)
		if got := s.recordingsAfter(20 * time.Second); len(got) != 1 || got[0].takenAt < 4*time.Second || got[0].takenAt > 5100*ms {
			s.t.Fatalf("with a long poll: recordings %+v", got)
		}
	})
}

// TestWithinGap has slow requests within the gap after a recording. A request that the ring
// still holds at the end of the gap gets a recording; an earlier one counts as missed. A
// freeze gets a recording at once, because its class differs.
func TestWithinGap(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		s.request("first", 0, 500*ms)
		s.request("lost", 20*time.Second, 21*time.Second)
		s.freeze(30*time.Second, 60*ms)
		s.request("later", 55*time.Second, 56*time.Second)
		got := s.recordingsAfter(100 * time.Second)
		must.Equal(s.t, len(got), 3, "recordings %+v", got)
		if got[1].Reason.Kind != KindFreeze || got[1].takenAt != 30200*ms || !maps.Equal(got[1].MissedCounts, map[Kind]uint64{KindSlow: 1}) {
			s.t.Errorf("the freeze's says %+v", got[1])
		}
		if got[2].Reason.Route != "later" || got[2].takenAt < 60*time.Second || got[2].takenAt > 61*time.Second {
			s.t.Errorf("the last one says %+v", got[2])
		}
		if st := s.recorder.State(); st.Missed[KindSlow] != 1 || st.Kept != 3 {
			s.t.Errorf("the state is %+v", st)
		}
	})
}

// TestFarWorse has a slightly slow request just before a far slower one, which gets a recording within
// the gap; a third one that is no slower counts as missed.
func TestFarWorse(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		s.request("GET /list", 0, 37*ms)
		s.request("GET /export", 300*ms, 960*ms)
		s.request("GET /export", 1500*ms, 2200*ms)
		got := s.recordingsAfter(50 * time.Second)
		if len(got) != 2 || got[1].Reason.TookNS != int64(660*ms) || got[1].takenAt < 960*ms || got[1].takenAt > 1500*ms || s.recorder.State().Missed[KindSlow] != 1 {
			s.t.Fatalf("recordings %+v, the state %+v", got, s.recorder.State())
		}
	})
	// Latencies that double from 25 ms to 25 s lead to few recordings.
	runScenario(t, Options{}, func(s *scenario) {
		start := time.Duration(0)
		for took := 25 * ms; took < 30*time.Second; took *= 2 {
			s.request("GET /list", start, start+took)
			start += took
		}
		if got := s.recordingsAfter(59 * time.Second); len(got) > 5 {
			s.t.Errorf("%d recordings", len(got))
		}
	})
}

// TestFreezesLeaveRoomForRequests freezes the process every two minutes: a slow request still
// gets a recording.
func TestFreezesLeaveRoomForRequests(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		for i := range 20 {
			s.freeze(time.Duration(i)*2*time.Minute, 60*ms)
		}
		s.request("GET /order", 41*time.Minute, 41*time.Minute+time.Second)
		got := s.recordingsAfter(42 * time.Minute)
		byKind := map[Kind]int{}
		for _, g := range got {
			byKind[g.Reason.Kind]++
		}
		check.True(s.t, byKind[KindSlow] == 1 && byKind[KindFreeze] >= 3 && byKind[KindFreeze] <= 7, "kept are %v", byKind)
	})
}

// TestStormIsOneRecording has half a minute of slow requests: one recording is taken during it,
// and later triggers count as missed.
func TestStormIsOneRecording(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		const n = 1000
		for i := range n {
			from := time.Duration(i) * 30 * ms
			s.request("GET /order", from, from+200*ms)
		}
		got := s.recordingsAfter(59 * time.Second)
		st := s.recorder.State()
		if len(got) != 1 || got[0].takenAt > 2*time.Second || got[0].HeldCounts[KindSlow]+st.Missed[KindSlow] != n || st.Missed[KindSlow] < n/2 {
			s.t.Fatalf("recordings %+v, the state %+v", got, st)
		}
	})
	// The same if the ring still holds the storm's end when the gap is over.
	runScenario(t, Options{Gap: 4 * time.Second}, func(s *scenario) {
		for i := range 30 {
			s.request("GET /order", time.Duration(100*i)*ms, time.Duration(100*i+90)*ms)
		}
		s.request("GET /order", 4500*ms, 4600*ms) // another fault
		if got := s.recordingsAfter(59 * time.Second); len(got) != 2 || got[0].HeldCounts[KindSlow] < 10 || got[1].HeldCounts[KindSlow] != 1 {
			s.t.Fatalf("recordings %+v", got)
		}
	})
}

// TestCaptureWhileWaiting captures while the plan waits for an open request: Capture returns
// at once.
func TestCaptureWhileWaiting(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		s.request("poll", 0, 30*time.Second)
		s.request("GET /list", 0, 30*ms)
		time.Sleep(time.Until(s.origin.Add(time.Second)))
		before := time.Now()
		if _, err := s.recorder.Capture(s.t.Context(), "now"); err != nil || time.Since(before) > 0 {
			s.t.Errorf("it took %v: %v", time.Since(before), err)
		}
		if got := s.recordingsAfter(20 * time.Second); len(got) != 2 {
			s.t.Errorf("recordings %+v", got)
		}
	})
}

// TestBusyRing has another flight recorder in the process: triggers in that time count as missed,
// and the next recording reports them.
func TestBusyRing(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		s.ring.setBusy(true)
		s.request("GET /list", 2*time.Second, 3*time.Second)
		if s.recordingsAfter(5 * time.Second); s.recorder.State().Recording || s.recorder.State().Missed[KindSlow] != 1 {
			s.t.Errorf("the state is %+v", s.recorder.State())
		}
		s.ring.setBusy(false)
		s.request("GET /list", 10*time.Second, 11*time.Second)
		if got := s.recordingsAfter(20 * time.Second); len(got) != 1 || got[0].MissedCounts[KindSlow] != 1 || !s.recorder.State().Recording {
			s.t.Errorf("recordings %+v, the state %+v", got, s.recorder.State())
		}
	})
}

// TestPlan checks random plans: each accepted trigger is in a snapshot that is taken after the trigger and
// while the ring still holds its beginning, if that is possible at all; there is no snapshot without a
// trigger, and no second one of a class within the gap.
func TestPlan(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1000, 0)
		p := plan{tail: 200 * ms, gap: 20 * time.Second, minAge: 10 * time.Second}
		p.reach = min(p.minAge, time.Duration(rnd.Int64N(int64(20*time.Second)))+ms)
		openUntil := now
		open := func(_, _ time.Time) int { return boolToInt(now.Before(openUntil)) }
		var waiting []moment
		var lastTaken [classCount]time.Time
		var longest [classCount]time.Duration
		kinds := []Kind{KindSlow, KindSlow, KindUnusual, KindMany, KindFreeze, KindLatency}
		for range 60 {
			// Time passes; advance is called when it says so.
			for end := now.Add(time.Duration(rnd.ExpFloat64() * float64(3*time.Second))); ; {
				wait := p.advance(now, open)
				if wait < 0 || now.Add(wait).After(end) {
					must.Equal(t, wait < 0, (len(waiting) == 0), "seed %d: %d wait, and the next step is in %v", seed, len(waiting), wait)
					now = end
					break
				}
				if wait > 0 {
					now = now.Add(wait)
					continue
				}
				_, otherMoments, counts := p.takeWaiting(now)
				total := uint64(0)
				for _, n := range counts {
					total += n
				}
				must.True(t, total == uint64(len(waiting)) && len(otherMoments) < maxNamed,
					"seed %d: %d of %d are held, %d named", seed, total, len(waiting), len(otherMoments))
				var fresh bool
				for _, m := range waiting {
					if reserve := p.reach - min(p.tail, p.reach/4) - m.took; reserve > snapshotMargin && now.Sub(m.end.Add(-m.took)) > p.reach {
						t.Fatalf("seed %d: a request of %v that ended %v before is not held; the ring reaches %v", seed, m.took, now.Sub(m.end), p.reach)
					}
					if l := lastTaken[classOf[m.kind]]; l.IsZero() || now.Sub(l) >= p.gap || m.took >= farWorseFactor*longest[classOf[m.kind]] {
						fresh = true
					}
				}
				must.True(t, fresh, "seed %d: a snapshot of classes that all had one within the gap", seed)
				for _, m := range waiting {
					lastTaken[classOf[m.kind]], longest[classOf[m.kind]] = now, 0
				}
				for _, m := range waiting {
					longest[classOf[m.kind]] = max(longest[classOf[m.kind]], m.took)
				}
				waiting = waiting[:0]
			}
			m := moment{kind: kinds[rnd.IntN(len(kinds))], end: now, took: time.Duration(rnd.ExpFloat64() * float64(400*ms)), name: string(rune('a' + rnd.IntN(12)))}
			if p.add(m, now) {
				waiting = append(waiting, m)
			}
			openUntil = now.Add(time.Duration(rnd.ExpFloat64() * float64(time.Second)))
		}
	}
}

// TestNamedTriggers tests that a recording lists the longest of each kind and route. A kind that is
// triggered first or last is listed however short, but does not replace a longer request.
func TestNamedTriggers(t *testing.T) {
	for _, first := range []bool{true, false} {
		now := time.Unix(1000, 0)
		p := plan{tail: 200 * ms, gap: time.Minute, minAge: 10 * time.Second, reach: 10 * time.Second}
		add := func(k Kind, name string, took time.Duration) {
			check.True(t, p.add(moment{kind: k, end: now, took: took, name: name}, now), "not taken")
		}
		if first {
			add(KindFreeze, "", ms)
		}
		for i := range 20 {
			add(KindSlow, string(rune('a'+i)), time.Duration(i+1)*10*ms)
			add(KindSlow, "a", 5*ms)
		}
		if !first {
			add(KindFreeze, "", ms)
		}
		add(KindSlow, "short", 3*ms)
		add(KindFreeze, "", ms/2)
		reason, otherMoments, counts := p.takeWaiting(now)
		check.True(t, reason.name == "t" && reason.took == 200*ms && len(otherMoments) == maxNamed-1 && counts[KindSlow] == 41,
			"it is kept for %+v and names %+v of %v", reason, otherMoments, counts)
		for i, m := range otherMoments[:maxNamed-2] {
			check.Equal(t, m.name, string(rune('s'-i)), "it names %+v in place", m)
		}
		if last := otherMoments[maxNamed-2]; last.kind != KindFreeze || last.took != ms {
			t.Errorf("it does not name the freeze: %+v", otherMoments)
		}
		check.True(t, p.longestRecorded[classRequests] == 200*ms, "the longest that it holds is %v", p.longestRecorded[classRequests])
	}
}

// TestFarWorseNeedsNoGap tests that a moment far longer than the longest in the last recording of its
// class gets a recording at once, even if an earlier recording held a longer one.
func TestFarWorseNeedsNoGap(t *testing.T) {
	now := time.Unix(1000, 0)
	p := plan{tail: 200 * ms, gap: time.Minute, minAge: 10 * time.Second, reach: 10 * time.Second}
	noneOpen := func(time.Time, time.Time) int { return 0 }
	for i, c := range []struct{ after, took time.Duration }{{0, 2 * time.Second}, {2 * time.Minute, 30 * ms}, {10 * time.Second, 200 * ms}} {
		now = now.Add(c.after)
		must.True(t, p.add(moment{kind: KindSlow, end: now, took: c.took}, now), "number %d is not taken", i)
		if wait := p.advance(now, noneOpen); wait > 200*ms || wait <= 0 {
			t.Fatalf("number %d waits for %v", i, wait)
		}
		now = now.Add(200 * ms)
		must.Equal(t, p.advance(now, noneOpen), 0, "number %d is not due", i)
		p.takeWaiting(now)
	}
}

// TestSecondBounds tests each bound on a second's metrics: a value at it does not trigger, a value above it does.
func TestSecondBounds(t *testing.T) {
	opts := Options{Latency: 10 * ms, Goroutines: 1000, GC: 0.2, Share: 0.5}
	atBounds := metricsReading{schedLatency: 10 * ms, goroutines: 1000, gcShare: 0.2, elapsed: time.Second}
	for kind, c := range map[Kind]struct {
		aboveBound   metricsReading
		marked, slow uint64
	}{
		KindLatency:    {metricsReading{schedLatency: 10*ms + 1}, 0, 0},
		KindGoroutines: {metricsReading{goroutines: 1001}, 0, 0},
		KindGC:         {metricsReading{gcShare: 0.201}, 0, 0},
		KindMany:       {metricsReading{}, 20, 10},
	} {
		runScenario(t, opts, func(s *scenario) {
			s.recorder.opts.Slow = time.Hour
			second := func(metrics metricsReading, marked, slow uint64) map[Kind]uint64 {
				s.recorder.mu.Lock()
				s.recorder.markedRequests, s.recorder.slowRequests = marked, slow
				s.recorder.mu.Unlock()
				s.recorder.handleSecond(1, metrics)
				return s.recorder.State().Triggers
			}
			s.recorder.Stop() // the test does its goroutine's work
			if got := second(atBounds, 21, 10); len(got) > 0 {
				t.Errorf("at the bounds: %v", got)
			}
			if got := second(atBounds, 10, 9); len(got) > 0 {
				t.Errorf("nine slow ones: %v", got)
			}
			c.aboveBound.elapsed = time.Second
			if got := second(c.aboveBound, c.marked, c.slow); !maps.Equal(got, map[Kind]uint64{kind: 1}) {
				t.Errorf("above the bound of %s: %v", kind, got)
			}
			if got := second(metricsReading{elapsed: time.Second}, 0, 0); !maps.Equal(got, map[Kind]uint64{kind: 1}) {
				t.Errorf("a second later: %v", got)
			}
		})
	}
}

// TestMissedAfterAFailure tests that the next complete recording reports missed triggers, also those
// that a failed recording would have reported and held.
func TestMissedAfterAFailure(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		s.ring.setBusy(true)
		s.request("missed", 2*time.Second, 3*time.Second)
		s.recordingsAfter(5 * time.Second)
		s.ring.setBusy(false)
		time.Sleep(5 * time.Second)
		must.Do(s.t, os.Remove(s.dir))
		must.Do(s.t, os.WriteFile(s.dir, nil, 0o600)) // in place of the directory
		s.request("not written", 20*time.Second, 21*time.Second)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if st := s.recorder.State(); st.Failed != 1 || st.Kept != 0 || st.LastError == "" || st.Missed[KindSlow] != 2 {
			s.t.Fatalf("the state is %+v", st)
		}
		must.Do(s.t, os.Remove(s.dir))
		s.ring.writtenAt = nil
		s.request("kept", 120*time.Second, 121*time.Second)
		if got := s.recordingsAfter(150 * time.Second); len(got) != 1 || got[0].MissedCounts[KindSlow] != 2 || got[0].HeldCounts[KindSlow] != 1 || s.recorder.State().Missed[KindSlow] != 2 {
			s.t.Errorf("recordings %+v, the state is %+v", got, s.recorder.State())
		}
	})
}

// TestDay simulates a day of a service with a thousand requests a second, a fault every twenty minutes and
// one minute in which all requests are slow, with a fake clock and ring. Every fault is in a recording,
// the limits on recordings and on the disk hold, and the heap is as large after a day as after an hour. In
// ordinary tests the day has three hours.
func TestDay(t *testing.T) {
	hours := 3
	if os.Getenv("WHYLATE_FULL") == "1" {
		hours = 24
	}
	if testing.Short() {
		t.Skip("three hours of requests take seconds")
	}
	dir := t.TempDir()
	const disk = 40 << 10
	synctest.Test(t, func(t *testing.T) {
		ring := new(fakeRing)
		r := must.Have(startWith(Options{Dir: dir, MaxDisk: disk, Budget: -1, NoHost: true, Gap: time.Minute}, ring))(t)
		defer r.Stop()
		routes := []string{"GET /", "GET /items/{id}", "POST /order", "GET /search"}
		faults, named, heapAfterHour := 0, 0, uint64(0)
		live := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		for second := range hours * 3600 {
			storm := second/60 == 90
			for i := range 1000 {
				took := time.Duration(1+(i*7+second)%9) * ms
				if storm {
					took *= 50
				}
				r.requestEnded(mark.Ended{Name: routes[i%len(routes)], Status: "2xx", Began: time.Now(), Took: took})
			}
			m := mark.Begin(mark.HTTP, "GET /marked", "")
			if second%1200 == 1190 {
				faults++
				r.requestEnded(mark.Ended{Name: "POST /order", Status: "5xx", Began: time.Now(), Took: time.Duration(700+faults) * ms})
			}
			time.Sleep(time.Second)
			m.End("", "2xx")
			switch second {
			case 3599:
				heapAfterHour = live()
			case hours*3600 - 1:
				if heapAtEnd := live(); float64(heapAtEnd) > 1.05*float64(heapAfterHour)+64<<10 {
					t.Errorf("the heap has %d bytes after an hour and %d after %d hours", heapAfterHour, heapAtEnd, hours)
				}
			}
			if second%600 != 599 {
				continue
			}
			synctest.Wait()
			files, err := listRecordings(dir)
			total := int64(0)
			for _, f := range files {
				total += f.size
				data, rerr := os.ReadFile(filepath.Join(dir, f.name))
				var m recordingMeta
				must.True(t, rerr == nil && json.Unmarshal(zipEntries(t, data)["meta.json"], &m) == nil, "%s: %v", f.name, rerr)
				if m.Flight.Reason.Route == "POST /order" && m.Flight.Reason.Status == "5xx" && m.Flight.Reason.TookNS == int64(time.Duration(700+faults)*ms) {
					named++
					must.Do(t, os.Rename(filepath.Join(dir, f.name), filepath.Join(dir, f.name+".seen")))
				}
			}
			must.True(t, err == nil && total <= disk, "%d bytes in %d files, %v", total, len(files), err)
		}
		s := r.State()
		if named != faults || s.Failed != 0 || s.Kept > uint64(6+6*hours) || s.Kept < uint64(faults) || s.Triggers[KindUnusual] < 5000 || s.Missed[KindUnusual] >= s.Triggers[KindUnusual] {
			t.Errorf("of %d faults %d are recorded; the state is %+v", faults, named, s)
		}
		t.Logf("%d faults, %d recorded; the state is %+v", faults, named, s)
	})
}

// TestShortestFreeze tests that a freeze of exactly Options.Freeze is recorded and a shorter one is not, and that Stop
// returns at once without a sink.
func TestShortestFreeze(t *testing.T) {
	for took, want := range map[time.Duration]int{300*time.Millisecond - 1: 0, 300 * time.Millisecond: 1} {
		runScenario(t, Options{Freeze: 300 * time.Millisecond}, func(s *scenario) {
			s.freeze(time.Second, took)
			check.Equal(t, len(s.recordingsAfter(time.Minute)), want, "recordings of a freeze of %v", took)
			began := time.Now()
			if s.recorder.Stop(); time.Since(began) >= sinkPatience {
				t.Errorf("Stop took %v", time.Since(began))
			}
		})
	}
}
