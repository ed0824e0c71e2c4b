package kernelprobe

import (
	"testing"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/testing/must"
)

// threadTimes are the sums over an interval, in ns.
type threadTimes struct {
	run, queued, throttled, disk, sleep int64
	endedWaits                          int64            // waits for a CPU that ended, whole
	rivals                              map[string]int64 // what ran while the thread was queued, by process
}

// timesOf adds up the states of the service's threads in [from, to).
func timesOf(t testing.TB, data []byte, from, to int64) (map[int32]*threadTimes, kernelevents.Tables) {
	t.Helper()
	r, err := kernelevents.NewReader(data)
	must.Do(t, err)
	const (
		unknown = iota
		running
		queued
		disk
		sleeping
	)
	type state struct {
		kind    int
		start   int64
		cpu     int64
		current *threadTimes
	}
	isOwn, process := map[int32]bool{}, map[int64]string{0: "idle"}
	for _, th := range r.Tables.Threads {
		isOwn[th.TID] = th.Own
		process[int64(th.TID)] = th.Process
	}
	states := map[int32]*state{}
	times := map[int32]*threadTimes{}
	type slot struct {
		tid   int64
		start int64
	}
	cpus := map[int64]*slot{}
	cpu := func(n int64) *slot {
		if cpus[n] == nil {
			cpus[n] = &slot{tid: -1}
		}
		return cpus[n]
	}
	overlap := func(a, b int64) int64 { return max(0, min(b, to)-max(a, from)) }
	stateOf := func(tid int32) *state {
		s := states[tid]
		if s == nil {
			times[tid] = &threadTimes{rivals: map[string]int64{}}
			s = &state{current: times[tid]}
			states[tid] = s
		}
		return s
	}
	change := func(s *state, kind int, time int64) {
		d := overlap(s.start, time)
		switch s.kind {
		case running:
			s.current.run += d
		case queued:
			s.current.queued += d
			if from <= time && time < to {
				s.current.endedWaits += time - s.start
			}
		case disk:
			s.current.disk += d
		case sleeping:
			s.current.sleep += d
		}
		s.kind, s.start = kind, time
	}
	// account gives the time on a CPU start its last change to what ran there, for each thread in its queue.
	account := func(n, time int64) {
		c := cpu(n)
		for _, s := range states {
			if s.kind == queued && s.cpu == n && c.tid >= 0 {
				s.current.rivals[process[c.tid]] += overlap(max(s.start, c.start), time)
			}
		}
	}
	var events []kernelevents.Event
	for {
		events, err = r.Next(events)
		if err != nil {
			break
		}
		for i := range events {
			e := &events[i]
			switch e.Kind {
			case kernelevents.Switch:
				account(int64(e.CPU), e.Time)
				*cpu(int64(e.CPU)) = slot{e.A, e.Time}
				if isOwn[e.Thread] {
					s := stateOf(e.Thread)
					kind := sleeping
					switch kernelevents.State(e.B).Class() {
					case kernelevents.Runnable:
						kind = queued
					case kernelevents.DiskWait:
						kind = disk
					}
					s.cpu = int64(e.CPU)
					change(s, kind, e.Time)
				}
				if isOwn[int32(e.A)] {
					change(stateOf(int32(e.A)), running, e.Time)
				}
			case kernelevents.Wakeup:
				account(e.B, e.Time)
				if e.C >= 0 && cpu(e.B).tid != e.C {
					*cpu(e.B) = slot{e.C, e.Time}
				}
				s := stateOf(e.Thread)
				s.cpu = e.B
				change(s, queued, e.Time)
			case kernelevents.Migrate:
				account(e.A, e.Time)
				if e.C >= 0 && cpu(e.B).tid != e.C {
					*cpu(e.B) = slot{e.C, e.Time}
				}
				stateOf(e.Thread).cpu = e.B
			case kernelevents.Throttled:
				stateOf(e.Thread).current.throttled += overlap(e.Time-e.A, e.Time)
			}
		}
	}
	for _, s := range states {
		change(s, unknown, to)
	}
	return times, r.Tables
}
