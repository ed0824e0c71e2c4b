package tune

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

var update = flag.Bool("update", false, "write the golden files")

// TestReadEnvironment tests that values which the runtime accepts count as set by hand, unlike a GOMAXPROCS that it ignores.
func TestReadEnvironment(t *testing.T) {
	for in, want := range map[environment]environment{
		{}:                            {},
		{"4", "1GiB", "off"}:          {"4", "1GiB", "off"},
		{"0", "", ""}:                 {},
		{"-1", "", ""}:                {},
		{"x", "", ""}:                 {},
		{"1", "", ""}:                 {"1", "", ""},
		{procs: "9", gogc: "50"}:      {procs: "9", gogc: "50"},
		{procs: "2.5", memory: "off"}: {memory: "off"},
	} {
		t.Setenv("GOMAXPROCS", in.procs)
		t.Setenv("GOMEMLIMIT", in.memory)
		t.Setenv("GOGC", in.gogc)
		check.Equal(t, readEnvironment(), want, "%+v is read as", in)
	}
}

// TestReadGo compares each figure with the runtime's metric, and mapped memory with the sum of its parts.
func TestReadGo(t *testing.T) {
	samples := newSamples()
	s := readGo(samples)
	value := map[string]float64{}
	for _, m := range samples {
		switch m.Value.Kind() {
		case metrics.KindUint64:
			value[m.Name] = float64(m.Value.Uint64())
		case metrics.KindFloat64:
			value[m.Name] = m.Value.Float64()
		}
	}
	mapped := value["/memory/classes/total:bytes"] - value["/memory/classes/heap/released:bytes"]
	parts := value["/memory/classes/heap/objects:bytes"] + value["/memory/classes/heap/unused:bytes"] + value["/memory/classes/heap/free:bytes"]
	for name, c := range map[string][2]float64{
		"collector": {s.gcSeconds, value["/cpu/classes/gc/total:cpu-seconds"]}, "idle": {s.idleSeconds, value["/cpu/classes/idle:cpu-seconds"]}, "all": {s.totalSeconds, value["/cpu/classes/total:cpu-seconds"]},
		"cycles": {float64(s.cycles), value["/gc/cycles/total:gc-cycles"]}, "live": {float64(s.live), value["/gc/heap/live:bytes"]}, "goal": {float64(s.goal), value["/gc/heap/goal:bytes"]},
		"stacks": {float64(s.stacks), value["/gc/scan/stack:bytes"]}, "globals": {float64(s.globals), value["/gc/scan/globals:bytes"]}, "limit": {float64(s.memoryLimit), min(value["/gc/gomemlimit:bytes"], math.MaxInt64)},
		"mapped": {float64(s.mapped), mapped}, "overhead": {float64(s.overhead), mapped - parts}, "GOGC": {float64(s.gogc), value["/gc/gogc:percent"]},
	} {
		check.True(t, c[0] == c[1], "%s: %v, the runtime says %v", name, c[0], c[1])
	}
	if s.schedWait < 0 || len(samples) > mLatencies && samples[mLatencies].Value.Kind() != metrics.KindFloat64Histogram {
		t.Errorf("waits of %v s", s.schedWait)
	}
	if got := readMapped()(); got <= 0 || math.Abs(float64(got)-mapped) > 64*mib {
		t.Errorf("%d bytes are mapped, before it were %v", got, mapped)
	}
	inf := math.Inf(1)
	for want, h := range map[float64]*metrics.Float64Histogram{
		0:    {Counts: []uint64{0}, Buckets: []float64{1, 2}},
		4.5:  {Counts: []uint64{3}, Buckets: []float64{1, 2}},
		7.5:  {Counts: []uint64{3, 1}, Buckets: []float64{1, 2, 4}},
		1.5:  {Counts: []uint64{3, 0}, Buckets: []float64{-inf, 1, 4}},
		12.5: {Counts: []uint64{1, 3}, Buckets: []float64{-inf, 1, 7}},
		8:    {Counts: []uint64{2}, Buckets: []float64{4, inf}},
	} {
		check.Equal(t, sumOf(h), want, "%+v adds up to", h)
	}
}

// TestDecisions leads the GOGC policy through random windows at and next to its thresholds, and compares its decisions with a
// golden file.
func TestDecisions(t *testing.T) {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(3, 1))
	pick := func(choices ...float64) float64 { return choices[r.IntN(len(choices))] }
	nearby := func(v float64) float64 { return v + pick(-1, 0, 1)*v*0.01 }
	for walk := range 24 {
		var s gcState
		// The windows stay similar for 30 steps, so that decisions that need many windows in a row occur.
		shape := gcWindow{}
		gogc := int(pick(0, 1, 50, 100, 100, 100, 200, -1))
		for step := range 240 {
			if step%30 == 0 {
				live := int64(100 * mib)
				shape = gcWindow{live: live, stacks: int64(pick(0, 5)) * mib, globals: int64(pick(0, 3)) * mib, overhead: int64(pick(0, 10)) * mib, otherMemory: int64(pick(0, 50)) * mib}
				shape.memoryBound = int64(pick(0, 1000, 1000, nearby(400), nearby(286), nearby(340))) * mib
				shape.gomemlimit = int64(pick(noMemoryLimit, 900*mib, 115*mib))
				shape.gcShare = pick(-1, nearby(minGCShare), nearby(thrashShare), 0.1, 0.5)
				shape.bounded, shape.limitOurs, shape.slack = r.IntN(4) > 0, r.IntN(2) > 0, r.IntN(3) > 0
				shape.unrelaxedLimit = int64(pick(90, nearby(160), nearby(170), 400)) * mib
				shape.goal = live + int64(pick(nearby(thrashGOGC), nearby(50), nearby(100), 200)*float64(live+shape.stacks+shape.globals)/100)
			}
			w := shape
			w.gogc = gogc
			w.cycles = uint64(pick(0, 1, 1, 1, 2, 5))
			w.elapsed = time.Duration(pick(0, 100, 500, 1000, 2500)) * time.Millisecond
			d := s.step(w)
			if d.gogc != gogc || d.alarm || d.relax || d.restore {
				fmt.Fprintf(&b, "%d.%d: %d to %d", walk, step, gogc, d.gogc)
				for _, f := range []struct {
					set  bool
					name string
				}{{d.alarm, " alarm"}, {d.relax, " relax"}, {d.restore, " restore"}} {
					if f.set {
						b.WriteString(f.name)
					}
				}
				fmt.Fprintf(&b, ": %s\n", d.reason)
			}
			gogc = d.gogc
		}
		fmt.Fprintf(&b, "%d: %+v\n", walk, s)
	}
	must.Golden(t, *update, "testdata/decisions.txt", b.Bytes())
}

// TestMemoryLimits compares GOMEMLIMIT and its reason, for inputs at the policy's thresholds, with a golden file. A line has the
// fields in the order of the call that writes it.
func TestMemoryLimits(t *testing.T) {
	var b bytes.Buffer
	r := rand.New(rand.NewPCG(4, 1))
	pick := func(choices ...float64) float64 { return choices[r.IntN(len(choices))] }
	nearby := func(v float64) int64 { return int64(v + pick(-1, 0, 1)*v*0.01) }
	for range 90 {
		in := memoryInput{ratio: pick(0.9, 0.5, 1), defaultRatio: r.IntN(2) > 0, relaxed: r.IntN(4) == 0, settled: r.IntN(2) > 0, noLimitReason: "none is seen"}
		in.limit = int64(pick(0, 16, 95, 96, 97, 128, 1000, 1000)) * mib
		in.high = int64(pick(0, 0, 0, 64, 900)) * mib
		in.target = pick(0, 0, memoryTarget)
		in.otherMemory = int64(pick(-5, 0, 20, 100, 600)) * mib
		in.reserve = int64(pick(0, 0, 24, 200)) * mib
		in.needed = int64(pick(0, 10, 300, 2000)) * mib
		in.current = int64(pick(noMemoryLimit, 1*mib))
		want, _ := memoryFor(in)
		if in.current != noMemoryLimit && want != noMemoryLimit {
			in.current = nearby(float64(want) * pick(0.9, 0.95, 0.97, 1, 1.03, 1.05, 1.1))
		}
		got, reason := memoryFor(in)
		fmt.Fprintf(&b, "%d/%d, %g %v %g, %d %d %d, %v %v, %d: %d of %d, %s\n",
			in.limit/mib, in.high/mib, in.ratio, in.defaultRatio, in.target, in.otherMemory/mib, in.reserve/mib, in.needed/mib, in.relaxed, in.settled, in.current, got, in.ceiling(), reason)
	}
	must.Golden(t, *update, "testdata/memory.txt", b.Bytes())
}

// TestCrowdedWindow tests that the counters of the process's group suffice if it has the tightest quota.
func TestCrowdedWindow(t *testing.T) {
	for _, c := range []struct {
		depth             int
		current, previous cgroup.Fields
		cpu, measured     bool
	}{{0, cgroup.HasBandwidth, cgroup.HasBandwidth, true, true}, {0, cgroup.HasBandwidth, cgroup.HasBandwidth, false, false}, {1, cgroup.HasBandwidth, cgroup.HasBandwidth, true, false}, {0, cgroup.HasBandwidth, 0, true, false}, {0, 0, cgroup.HasBandwidth, true, false}} {
		tuner := &Tuner{}
		tuner.current.bounds.QuotaDepth, tuner.current.stat.Has, tuner.previous.stat.Has, tuner.current.cpuOK = c.depth, c.current, c.previous, c.cpu
		check.Equal(t, tuner.crowdedWindow(3).measured, c.measured, "%+v: measured", c)
	}
}
