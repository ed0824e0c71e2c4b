package kernelprobe

import (
	"testing"

	"github.com/whylate/whylate/internal/capture/kernelevents"
)

// threadTimes are the sums over an interval, in ns.
type threadTimes struct {
	run, queued, throttled, disk, sleep int64
	endedWaits                          int64            // waits for a CPU that ended, whole
	others                              map[string]int64 // what ran while the thread was queued, by process
}

// timesOf adds up the states of the service's threads in [from, to).
func timesOf(t testing.TB, data []byte, from, to int64) (map[int32]*threadTimes, kernelevents.Tables) {
	t.Helper()
	r, err := kernelevents.NewReader(data)
	if err != nil {
		t.Fatal(err)
	}
	const (
		unknown = iota
		running
		queued
		disk
		sleeping
	)
	type state struct {
		kind    int
		since   int64
		cpu     int64
		current *threadTimes
	}
	own, process := map[int32]bool{}, map[int64]string{0: "idle"}
	for _, th := range r.Tables.Threads {
		own[th.TID] = th.Own
		process[int64(th.TID)] = th.Process
	}
	states := map[int32]*state{}
	times := map[int32]*threadTimes{}
	type slot struct {
		tid   int64
		since int64
	}
	cpus := map[int64]*slot{}
	cpu := func(n int64) *slot {
		if cpus[n] == nil {
			cpus[n] = &slot{tid: -1}
		}
		return cpus[n]
	}
	overlap := func(a, b int64) int64 { return max(0, min(b, to)-max(a, from)) }
	of := func(tid int32) *state {
		s := states[tid]
		if s == nil {
			times[tid] = &threadTimes{others: map[string]int64{}}
			s = &state{current: times[tid]}
			states[tid] = s
		}
		return s
	}
	change := func(s *state, kind int, now int64) {
		d := overlap(s.since, now)
		switch s.kind {
		case running:
			s.current.run += d
		case queued:
			s.current.queued += d
			if from <= now && now < to {
				s.current.endedWaits += now - s.since
			}
		case disk:
			s.current.disk += d
		case sleeping:
			s.current.sleep += d
		}
		s.kind, s.since = kind, now
	}
	// account gives the time on a CPU since its last change to what ran there, for each thread in its queue.
	account := func(n, now int64) {
		c := cpu(n)
		for _, s := range states {
			if s.kind == queued && s.cpu == n && c.tid >= 0 {
				s.current.others[process[c.tid]] += overlap(max(s.since, c.since), now)
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
				if own[e.Thread] {
					s := of(e.Thread)
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
				if own[int32(e.A)] {
					change(of(int32(e.A)), running, e.Time)
				}
			case kernelevents.Wakeup:
				account(e.B, e.Time)
				if e.C >= 0 && cpu(e.B).tid != e.C {
					*cpu(e.B) = slot{e.C, e.Time}
				}
				s := of(e.Thread)
				s.cpu = e.B
				change(s, queued, e.Time)
			case kernelevents.Migrate:
				account(e.A, e.Time)
				if e.C >= 0 && cpu(e.B).tid != e.C {
					*cpu(e.B) = slot{e.C, e.Time}
				}
				of(e.Thread).cpu = e.B
			case kernelevents.Throttled:
				of(e.Thread).current.throttled += overlap(e.Time-e.A, e.Time)
			}
		}
	}
	for _, s := range states {
		change(s, unknown, to)
	}
	return times, r.Tables
}
