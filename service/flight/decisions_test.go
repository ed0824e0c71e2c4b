package flight

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

var update = flag.Bool("update", false, "write the golden files")

// TestDecisions leads the governor, the plan and the route limit through random situations at and next to their
// thresholds, and compares their decisions with golden files.
func TestDecisions(t *testing.T) {
	t.Run("governor", func(t *testing.T) { must.Golden(t, *update, "testdata/governor.txt", governorDecisions()) })
	t.Run("plan", func(t *testing.T) { must.Golden(t, *update, "testdata/plan.txt", planDecisions()) })
	t.Run("routelimit", func(t *testing.T) { must.Golden(t, *update, "testdata/routelimit.txt", routeLimitDecisions()) })
}

func governorDecisions() []byte {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(5, 1))
	pick := func(choices ...float64) float64 { return choices[r.IntN(len(choices))] }
	for walk := range 12 {
		budget := pick(0.01, 0.01, 0.002, 0)
		g := newGovernor(budget, time.Duration(pick(2, 10))*time.Second)
		load, dear, procs := 0.0, 0.0, 1
		for step := range 400 {
			if step%80 == 0 {
				procs = int(pick(0, 1, 4))
				// As a share of the budget, as long as measured CPU time does not correct it.
				load = budget * pick(0.1, resumeShare, 0.99, 1, 1.01, 2, 19, 20, 21, 100) * float64(max(procs, 1)) / (startBytes * byteCost)
				dear = pick(0, 1, 3, 10)
			}
			took := time.Duration(pick(1000, 1000, 1000, 500, 4000, 6000, 0)) * time.Millisecond
			starts := load * took.Seconds()
			cpu := time.Duration(-1)
			if pick(0, 1, 1, 1) > 0 {
				cpuPerStart := 20e-6
				if g.running {
					cpuPerStart += dear * startBytes * byteCost
				}
				cpu = time.Duration(starts * cpuPerStart * 1e9)
			}
			before := g
			g.decide(took, starts, procs, cpu)
			if r.IntN(40) == 0 {
				n := pick(minStarts-1, minStarts, minStarts, 10*minStarts)
				g.noteBytes(pick(12, 17, 25)*n, n)
			}
			if g.running != before.running || g.costSource != before.costSource || g.duty != before.duty && step%20 == 0 {
				fmt.Fprintf(&b, "%d.%d: runs %v, share %.4f, cost %.6f by %s, factor %.3f, %.1f bytes a start\n", walk, step, g.running, g.duty, g.cost, g.costSource, g.cpuFactor, g.bytesPerStart)
			}
		}
	}
	return b.Bytes()
}

func planDecisions() []byte {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(6, 1))
	kinds := []Kind{KindSlow, KindSlow, KindFreeze, KindGoroutines, KindGC, KindAsked}
	for walk := range 4 {
		p := plan{tail: 500 * time.Millisecond, gap: 10 * time.Second, minAge: 2 * time.Second, reach: 6 * time.Second}
		if walk%2 == 1 {
			p.tail, p.reach = 2*time.Second, 3*time.Second
		}
		start := time.Unix(1000, 0)
		now := start
		open := 0
		for step := range 220 {
			now = now.Add([]time.Duration{0, time.Millisecond, 20 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 9 * time.Second}[r.IntN(7)])
			if r.IntN(2) == 0 {
				m := moment{kind: kinds[r.IntN(len(kinds))], name: []string{"/a", "/b", "/c", "/d"}[r.IntN(4)], end: now.Add(-time.Duration(r.IntN(3)) * 100 * time.Millisecond), took: time.Duration(1<<r.IntN(14)) * time.Millisecond}
				if !p.add(m, now) {
					fmt.Fprintf(&b, "%d.%d: %v %s %s of %v passes\n", walk, step, now.Sub(start), m.kind, m.name, m.took)
				}
			}
			open = max(0, open+r.IntN(3)-1)
			var openRange [2]time.Time
			wait := p.advance(now, func(from, to time.Time) int { openRange = [2]time.Time{from, to}; return open })
			if wait != 0 {
				if len(p.waiting) > 0 && step%7 == 0 {
					fmt.Fprintf(&b, "%d.%d: %v waits %v", walk, step, now.Sub(start), wait)
					if !openRange[0].IsZero() {
						fmt.Fprintf(&b, " for %d open from %v to %v", open, openRange[0].Sub(start), openRange[1].Sub(start))
					}
					b.WriteByte('\n')
				}
				continue
			}
			reason, otherMoments, counts := p.takeWaiting(now)
			fmt.Fprintf(&b, "%d.%d: %v takes %s %s of %v;", walk, step, now.Sub(start), reason.kind, reason.name, reason.took)
			for _, m := range otherMoments {
				fmt.Fprintf(&b, " %s %s %v", m.kind, m.name, m.took)
			}
			fmt.Fprintf(&b, "; %v\n", counts)
		}
		fmt.Fprintf(&b, "%d: dropped %v\n", walk, p.dropWaiting())
	}
	return b.Bytes()
}

func routeLimitDecisions() []byte {
	var b bytes.Buffer
	for e := range 46 {
		for _, d := range []time.Duration{1<<e - 1, 1 << e, 3 << e / 2} {
			i := bucketOf(d)
			fmt.Fprintf(&b, "%d: bucket %d, up to %d\n", d, i, upperBound(i))
		}
	}
	r := newRoute()
	for i := range 8 * minRequests {
		if i%minRequests == minRequests-1 {
			r.updateLimit(0.9, 2, time.Microsecond)
			fmt.Fprintf(&b, "after %d: %d\n", i, r.limit.Load())
		}
		r.add(time.Duration(i+1) * time.Microsecond)
		if i%minRequests == 0 {
			for _, q := range []float64{0.5, 0.99, 1} {
				r.updateLimit(q, 3, 500*time.Microsecond)
				fmt.Fprintf(&b, "after %d: %g of them within a third of %d\n", i+1, q, r.limit.Load())
			}
			r.rotate()
		}
	}
	fmt.Fprintf(&b, "slow: %v %v\n", r.add(time.Duration(r.limit.Load())), r.add(time.Duration(r.limit.Load())+1))
	return b.Bytes()
}

// TestList tests that only regular files with a recording's name are recordings, not directories, links or other files.
func TestList(t *testing.T) {
	dir := t.TempDir()
	name := func(n int) string { return fileName(time.Unix(int64(n), 0), KindSlow, 1, n) }
	for n, size := range []int{3, 0, 7} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name(n)), make([]byte, size), 0o600))
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, name(8)), 0o700))
	must.Do(t, os.Symlink(name(0), filepath.Join(dir, name(9))))
	for _, foreignName := range []string{"notes.txt", name(1) + partInfix + "1", "flight-x.whylate", "flight-1-2-3-4-5.whylate", "x-" + name(2), "flight-1-slow-3-4.zip"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, foreignName), []byte("x"), 0o600))
	}
	files := must.Have(listRecordings(dir))(t)
	var got []string
	for _, f := range files {
		got = append(got, fmt.Sprint(f.name, f.size))
	}
	if want := []string{name(0) + "3", name(1) + "0", name(2) + "7"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if remaining, err := enforceBudget(dir, 1<<20, ""); remaining != 10 || err != nil {
		t.Errorf("%d bytes are kept, %v", remaining, err)
	}
	if remaining, err := enforceBudget(dir, 9, ""); remaining != 7 || err != nil { // the oldest is deleted, then the rest fits
		t.Errorf("%d bytes are kept, %v", remaining, err)
	}
	if _, err := enforceBudget(filepath.Join(dir, "none"), 1, ""); err == nil {
		t.Error("enforceBudget accepts a directory that does not exist")
	}
	check.False(t, makeRoom(filepath.Join(dir, "none")), "makeRoom deleted files in a directory that does not exist")
}

// TestWriteAtomically tests that a file gets its name when it is complete, and that nothing is left if writing fails.
func TestWriteAtomically(t *testing.T) {
	dir := t.TempDir()
	const name = "flight-1-slow-1-1.whylate"
	if err := writeAtomically(dir, name, 7, func(f *os.File) error {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil || filepath.Base(f.Name()) != name+partInfix+"7" {
			t.Errorf("while it is written it is %s, %v", f.Name(), err)
		}
		_, err := f.WriteString("whole")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if b := must.Have(os.ReadFile(filepath.Join(dir, name)))(t); string(b) != "whole" {
		t.Errorf("%q", b)
	}
	full := fmt.Errorf("full")
	if err := writeAtomically(dir, name, 7, func(f *os.File) error { f.WriteString("half"); return full }); err != full {
		t.Errorf("%v", err)
	}
	check.Error(t, writeAtomically(dir, name, 7, func(f *os.File) error { return f.Close() }), "an error of Close was ignored")
	must.Do(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(dir, "taken", "x"), nil, 0o600))
	check.Error(t, writeAtomically(dir, "taken", 7, func(*os.File) error { return nil }), "a directory was replaced")
	if entries := must.Have(os.ReadDir(dir))(t); len(entries) != 2 {
		t.Errorf("there are %v", entries)
	}
	if b := must.Have(os.ReadFile(filepath.Join(dir, name)))(t); string(b) != "whole" {
		t.Errorf("after a failure %q", b)
	}
	part := filepath.Join(dir, name+partInfix+"7")
	must.Do(t, os.WriteFile(part, nil, 0o600))
	if f, err := createLocked(part); err == nil || f != nil {
		t.Error("an existing file was created")
	}
	if f := must.Have(createLocked(part + "0"))(t); true {
		if _, locked, lockable := tryLockFile(part + "0"); lockable && locked {
			t.Error("the lock of a file that is being written was taken")
		}
		f.Close()
		g, locked, lockable := tryLockFile(part + "0")
		check.False(t, lockable && !locked, "a file without a writer was not locked")
		if g != nil {
			g.Close()
		}
	}
	if _, _, lockable := tryLockFile(filepath.Join(dir, "none")); lockable {
		t.Error("a missing file was locked")
	}
	check.True(t, processExists(os.Getpid()) && !strings.Contains(name, " "), "this process is not alive")
}
