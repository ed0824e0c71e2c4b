package check

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

const period = 100 * time.Millisecond

func cgroupChecks() []Check {
	checks := []Check{
		{Name: "cgroup/no-limit", Needs: []string{"cpu"}, Run: noLimit},
		{Name: "cgroup/leaf-quota", Needs: []string{"cpu"}, Run: leafQuota},
		{Name: "cgroup/ancestor-quota", Needs: []string{"cpu"}, Run: ancestorQuota},
		{Name: "cgroup/both-quotas", Needs: []string{"cpu"}, Run: bothQuotas},
		{Name: "cgroup/small-quota-on-many-cores", Needs: []string{"cpu"}, MinCPUs: 8, Run: manyCores},
		{Name: "cgroup/odd-names", Needs: []string{"cpu"}, Run: oddNames},
		{Name: "cgroup/burst-and-weight", Needs: []string{"cpu"}, Run: burst},
		{Name: "cgroup/changed-while-running", Needs: []string{"cpu"}, Run: changed},
		{Name: "cgroup/moved", Needs: []string{"cpu"}, Run: moved},
		{Name: "cgroup/other-process", Needs: []string{"cpu"}, Run: otherProcess},
		{Name: "cgroup/controller-not-enabled", Needs: []string{"cpu"}, Run: notEnabled},
		{Name: "cgroup/cpuset", Needs: []string{"cpuset"}, MinCPUs: 2, Run: cpuset},
		{Name: "cgroup/memory", Needs: []string{"memory"}, Run: memory},
	}
	for _, surroundings := range []Surroundings{Plain, Namespaced, Bound} {
		checks = append(checks,
			Check{Name: "cgroup/verdict-own-" + surroundings.String(), Needs: []string{"cpu"}, MinCPUs: 2, Run: func(e *Env, t *T) { verdictOwn(e, t, surroundings) }},
			Check{Name: "cgroup/verdict-ancestor-" + surroundings.String(), Needs: []string{"cpu"}, MinCPUs: 2, Run: func(e *Env, t *T) { verdictAncestor(e, t, surroundings) }},
			Check{Name: "cgroup/verdict-none-" + surroundings.String(), Needs: []string{"cpu"}, MinCPUs: 2, Run: func(e *Env, t *T) { verdictNone(e, t, surroundings) }},
		)
	}
	return checks
}

func (h Surroundings) String() string {
	return [...]string{"plain", "namespaced", "bound", "covered"}[h]
}

// Found is what a child says of itself.
type Found struct {
	Limits     cgroup.Limits
	GOMAXPROCS int
	NumCPU     int
}

func cgroupChildren() map[string]ChildFunc {
	return map[string]ChildFunc{
		"limits": func(*ChildIO, []string) (any, error) { return find() },
		"follow": follow,
		"spin":   spin,
	}
}

func find() (*Found, error) {
	l, err := cgroup.Read(cgroup.Options{})
	if err != nil {
		return nil, err
	}
	return &Found{Limits: *l, GOMAXPROCS: runtime.GOMAXPROCS(0), NumCPU: runtime.NumCPU()}, nil
}

// follow answers each line with the bounds and the counters of that moment.
func follow(c *ChildIO, _ []string) (any, error) {
	s, err := cgroup.NewSampler(cgroup.Options{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for {
		var f Followed
		if err := s.SampleLimits(&f.Bounds); err != nil {
			return nil, err
		}
		f.Moved = s.Moved()
		if err := c.Say(f); err != nil {
			return nil, err
		}
		if line, err := c.Hear(); err != nil || line == "end" {
			return f, err
		}
	}
}

// Followed is an answer of the child "follow".
type Followed struct {
	Bounds cgroup.Tightest
	Moved  bool
}

// spin uses CPU time on as many threads as its argument says, and answers each line with the throttling since its start.
func spin(c *ChildIO, args []string) (any, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(n + 1)
	s, err := cgroup.NewSampler(cgroup.Options{})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var from, to cgroup.Stat
	if err := s.Sample(&from); err != nil {
		return nil, err
	}
	for range n {
		go func() {
			runtime.LockOSThread()
			for x := uint64(1); ; x = x*6364136223846793005 + 1 {
				if x == 0 {
					return
				}
			}
		}()
	}
	for {
		if err := c.Say("spinning"); err != nil {
			return nil, err
		}
		if _, err := c.Hear(); err != nil {
			return nil, err
		}
		if err := s.Sample(&to); err != nil {
			return nil, err
		}
		if err := c.Say(Spun{Throttling: cgroup.Compare(&from, &to), From: from, To: to}); err != nil {
			return nil, err
		}
	}
}

// Spun is an answer of the child "spin".
type Spun struct {
	Throttling cgroup.Throttling
	From, To   cgroup.Stat
}

// limitsIn runs a child in the group and returns the limits that it read.
func limitsIn(t *T, g *Group, surroundings Surroundings) *Found {
	var f Found
	g.Start(t, surroundings, nil, "limits").Receive(t, &f)
	return &f
}

// expectQuota checks the tightest quota and its level, and that the runtime's
// own choice is the one that RuntimeDefault foretells.
func expectQuota(t *T, f *Found, cpus float64, depth int) {
	c := &f.Limits.CPU
	got := -1
	if c.QuotaLevel >= 0 {
		got = c.Levels[c.QuotaLevel].Depth
	}
	if math.Abs(c.Quota-cpus) > 1e-9 || got != depth {
		t.Errorf("found quota %v at depth %d, want %v at depth %d; levels %+v; notes %q", c.Quota, got, cpus, depth, c.Levels, f.Limits.Notes)
	}
	if want := c.RuntimeDefault(); f.GOMAXPROCS != want {
		t.Errorf("the runtime set GOMAXPROCS %d, RuntimeDefault says %d", f.GOMAXPROCS, want)
	}
	t.Logf("found %v CPUs (depth %d) of %d in %d levels, hidden %v; Go set GOMAXPROCS %d", c.Quota, got, c.Parallelism, len(c.Levels), c.Hidden, f.GOMAXPROCS)
}

func quotaFor(cpus float64) time.Duration {
	return time.Duration(cpus * float64(period))
}

func noLimit(e *Env, t *T) {
	g := e.Group(t)
	f := limitsIn(t, g, Plain)
	expectQuota(t, f, 0, -1)
	if f.Limits.CPU.Parallelism != runtime.NumCPU() {
		t.Errorf("parallelism %d, want the machine's %d", f.Limits.CPU.Parallelism, runtime.NumCPU())
	}
	if f.Limits.CPU.Hidden {
		t.Errorf("hidden ancestors reported, although the hierarchy's root is mounted at %s", f.Limits.CPU.MountPoint)
	}
}

func leafQuota(e *Env, t *T) {
	g := e.Group(t).Sub(t, "leaf")
	for _, cpus := range []float64{0.25, 1, 1.5} {
		g.SetCPU(t, quotaFor(cpus), period)
		for _, surroundings := range []Surroundings{Plain, Namespaced, Bound, Covered} {
			f := limitsIn(t, g, surroundings)
			expectQuota(t, f, cpus, 0)
			if want := surroundings != Plain; f.Limits.CPU.Hidden != want {
				t.Errorf("%v: hidden %v, want %v", surroundings, f.Limits.CPU.Hidden, want)
			}
			// Two containers' views differ, the file that binds does not.
			file := f.Limits.CPU.Levels[0].File
			if _, err := os.Stat(filepath.Join(g.Dir("cpu"), filepath.Base(file))); err != nil {
				t.Errorf("%v: the file that won, %s, is not one of the group's: %v", surroundings, file, err)
			}
		}
	}
}

func ancestorQuota(e *Env, t *T) {
	top := e.Group(t)
	mid := top.Sub(t, "mid")
	leaf := mid.Sub(t, "leaf")
	top.SetCPU(t, quotaFor(0.5), period)
	expectQuota(t, limitsIn(t, leaf, Plain), 0.5, 2)
	for _, surroundings := range []Surroundings{Namespaced, Bound} {
		f := limitsIn(t, leaf, surroundings)
		expectQuota(t, f, 0, -1)
		if !f.Limits.CPU.Hidden {
			t.Errorf("%v: the ancestor with the quota is out of sight, but Hidden is false", surroundings)
		}
	}
}

func bothQuotas(e *Env, t *T) {
	top := e.Group(t)
	leaf := top.Sub(t, "leaf")
	top.SetCPU(t, quotaFor(1.5), period)
	leaf.SetCPU(t, quotaFor(1), period)
	expectQuota(t, limitsIn(t, leaf, Plain), 1, 0)
	if e.V2("cpu") {
		// v1 refuses a child's quota above its parent's.
		leaf.SetCPU(t, quotaFor(3), period)
		expectQuota(t, limitsIn(t, leaf, Plain), 1.5, 1)
	}
}

func manyCores(e *Env, t *T) {
	g := e.Group(t)
	g.SetCPU(t, quotaFor(4), period)
	for _, surroundings := range []Surroundings{Plain, Namespaced, Bound} {
		f := limitsIn(t, g, surroundings)
		expectQuota(t, f, 4, 0)
		if f.GOMAXPROCS != 4 || f.NumCPU != runtime.NumCPU() {
			t.Errorf("%v: GOMAXPROCS %d of NumCPU %d, want 4 of %d", surroundings, f.GOMAXPROCS, f.NumCPU, runtime.NumCPU())
		}
	}
	// Without container awareness, as under an older go.mod, the same binary
	// takes the whole machine.
	var f Found
	g.Start(t, Plain, []string{"GODEBUG=containermaxprocs=0"}, "limits").Receive(t, &f)
	if f.GOMAXPROCS != runtime.NumCPU() {
		t.Errorf("with containermaxprocs=0: GOMAXPROCS %d, want %d", f.GOMAXPROCS, runtime.NumCPU())
	}
	t.Logf("quota 4 CPUs on %d: Go sets 4, with containermaxprocs=0 it sets %d", runtime.NumCPU(), f.GOMAXPROCS)
}

// oddNames uses every character in group names that /proc/PID/mountinfo escapes, and others that it does not escape.
func oddNames(e *Env, t *T) {
	top := e.Group(t)
	for i, name := range []string{"with blank", `back\slash`, "tab\there", "colon:and,comma", "#hash", "\u00fcml\u00e4ut", "a (deleted)"} {
		g := top.Sub(t, name)
		leaf := g.Sub(t, "leaf")
		leaf.SetCPU(t, quotaFor(0.5), period)
		// Plain shows the name in the path, Bound in the mount's root; the
		// other surroundings show neither and are for once enough.
		hows := []Surroundings{Plain, Bound}
		if i == 0 {
			hows = []Surroundings{Plain, Namespaced, Bound, Covered}
		}
		for _, surroundings := range hows {
			f := limitsIn(t, leaf, surroundings)
			if f.Limits.CPU.Quota != 0.5 {
				t.Errorf("group %q, %v: quota %v, want 0.5; notes %q", name, surroundings, f.Limits.CPU.Quota, f.Limits.Notes)
			}
		}
	}
}

func burst(e *Env, t *T) {
	g := e.Group(t)
	g.SetCPU(t, quotaFor(0.5), period)
	burstFile, weightFile, weight := "cpu.cfs_burst_us", "cpu.shares", "512"
	if e.V2("cpu") {
		burstFile, weightFile, weight = "cpu.max.burst", "cpu.weight", "50"
	}
	g.Set(t, "cpu", burstFile, "20000")
	g.Set(t, "cpu", weightFile, weight)
	f := limitsIn(t, g, Plain)
	l := f.Limits.CPU.Levels[0]
	if l.Burst != 20*time.Millisecond || strconv.FormatInt(l.Weight, 10) != weight || l.Quota != quotaFor(0.5) || l.Period != period {
		t.Errorf("quota %v, period %v, burst %v, weight %d, want %v, %v, 20ms, %s", l.Quota, l.Period, l.Burst, l.Weight, quotaFor(0.5), period, weight)
	}
}

func changed(e *Env, t *T) {
	top := e.Group(t)
	g := top.Sub(t, "leaf")
	c := g.Start(t, Plain, nil, "follow")
	next := func(what string, quota float64, depth int) {
		var f Followed
		c.Receive(t, &f)
		if f.Bounds.Quota != quota || f.Bounds.QuotaDepth != depth || f.Moved {
			t.Errorf("%s: bounds %+v, moved %v; want quota %v at depth %d", what, f.Bounds, f.Moved, quota, depth)
		}
	}
	next("at the start", 0, -1)
	g.SetCPU(t, quotaFor(2), period)
	c.Send(t, "go on")
	next("after a quota of 2", 2, 0)
	g.SetCPU(t, quotaFor(0.5), period)
	c.Send(t, "go on")
	next("after a quota of 0.5", 0.5, 0)
	g.SetCPU(t, 0, period)
	top.SetCPU(t, quotaFor(1), period)
	c.Send(t, "go on")
	next("after the quota went to the parent", 1, 1)
	top.SetCPU(t, 0, period)
	c.Send(t, "go on")
	next("without one again", 0, -1)
}

func moved(e *Env, t *T) {
	top := e.Group(t)
	a, b := top.Sub(t, "a"), top.Sub(t, "b")
	c := a.Start(t, Plain, nil, "follow")
	var f Followed
	c.Receive(t, &f)
	if f.Moved {
		t.Errorf("moved before it was")
	}
	for _, dir := range b.dirs {
		if err := write(dir, "cgroup.procs", strconv.Itoa(c.Pid())); err != nil {
			t.Fatalf("moving the child: %v", err)
		}
	}
	c.Send(t, "go on")
	c.Receive(t, &f)
	if !f.Moved {
		t.Errorf("the process was moved from %s to %s, and Moved is false", a.Path(), b.Path())
	}
}

// otherProcess reads another process's limits from outside its container.
func otherProcess(e *Env, t *T) {
	top := e.Group(t)
	leaf := top.Sub(t, "leaf")
	top.SetCPU(t, quotaFor(1), period)
	for _, surroundings := range []Surroundings{Plain, Namespaced, Bound} {
		c := leaf.Start(t, surroundings, nil, "follow")
		var f Followed
		c.Receive(t, &f)
		l, err := cgroup.Read(cgroup.Options{PID: c.Pid()})
		if err != nil {
			t.Fatalf("reading process %d: %v", c.Pid(), err)
		}
		// From out here the whole chain shows, whatever the child sees.
		if l.CPU.Quota != 1 || l.CPU.QuotaLevel != 1 || l.CPU.Hidden {
			t.Errorf("%v: quota %v at level %d, hidden %v, want 1 at level 1; notes %q", surroundings, l.CPU.Quota, l.CPU.QuotaLevel, l.CPU.Hidden, l.Notes)
		}
		if surroundings == Plain && f.Bounds.Quota != 1 || surroundings != Plain && f.Bounds.Quota != 0 {
			t.Errorf("%v: the child itself sees quota %v", surroundings, f.Bounds.Quota)
		}
	}
}

// notEnabled: on v2 a group whose parent does not hand the cpu controller
// down has no cpu.max, and is bound by its ancestors all the same.
func notEnabled(e *Env, t *T) {
	if !e.V2("cpu") {
		t.Skipf("v1 controllers are in every group")
	}
	top := e.Group(t)
	top.SetCPU(t, quotaFor(0.5), period)
	dir := filepath.Join(top.Dir("cpu"), "bare")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	bare := &Group{env: e, path: top.path + "/bare", dirs: map[string]string{}}
	for c, d := range top.dirs {
		bare.dirs[c] = d + "/bare"
	}
	t.Cleanup(func() { bare.remove(t) })
	f := limitsIn(t, bare, Plain)
	expectQuota(t, f, 0.5, 1)
	if l := f.Limits.CPU.Levels[0]; !l.Missing {
		t.Errorf("the own group has no cpu controller, but Missing is false: %+v", l)
	}
	// The kernel schedules these tasks as the parent's.
	got := throttledBy(t, top, bare, Plain)
	if got.Throttling.Verdict != cgroup.VerdictAncestor {
		t.Errorf("verdict %+v, want ancestor", got.Throttling)
	}
}

func cpuset(e *Env, t *T) {
	// The last CPU that this process may use; they need not be counted from 0.
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, list, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	list, _, _ = strings.Cut(list, "\n")
	last := list[strings.LastIndexAny(list, ",-\t ")+1:]
	g := e.Group(t)
	g.Set(t, "cpuset", "cpuset.cpus", last)
	f := limitsIn(t, g, Plain)
	c := f.Limits.CPU
	if c.Cpuset != 1 || c.Affinity != 1 || c.Parallelism != 1 || c.Effective != 1 {
		t.Errorf("cpuset %d, affinity %d, parallelism %d, effective %v, want 1 each; notes %q", c.Cpuset, c.Affinity, c.Parallelism, c.Effective, f.Limits.Notes)
	}
	if f.GOMAXPROCS != c.RuntimeDefault() {
		t.Errorf("the runtime set GOMAXPROCS %d, RuntimeDefault says %d", f.GOMAXPROCS, c.RuntimeDefault())
	}
	for _, b := range c.Bounds {
		if b.Won && b.Kind != cgroup.BoundCpuset {
			t.Errorf("the bound that won is %+v, want the CPU set", b)
		}
	}
}

func memory(e *Env, t *T) {
	top := e.Group(t)
	leaf := top.Sub(t, "leaf")
	const big, small = 256 << 20, 128 << 20
	expect := func(what string, f *Found, want int64) {
		m := f.Limits.Memory
		if m.Max != want || m.Effective != want {
			t.Errorf("%s: memory max %d, effective %d, want %d; levels %+v; notes %q", what, m.Max, m.Effective, want, m.Levels, f.Limits.Notes)
		}
	}
	leaf.SetMemory(t, big)
	for _, surroundings := range []Surroundings{Plain, Namespaced, Bound} {
		expect("own limit, "+surroundings.String(), limitsIn(t, leaf, surroundings), big)
	}
	top.SetMemory(t, small)
	f := limitsIn(t, leaf, Plain)
	expect("ancestor's limit", f, small)
	if lv := f.Limits.Memory.MaxLevel; lv != 1 {
		t.Errorf("the ancestor's limit is at level %d, want 1", lv)
	}
	// v1 shows ancestors that are out of sight, v2 does not.
	hidden := int64(big)
	if !e.V2("memory") {
		hidden = small
	}
	for _, surroundings := range []Surroundings{Namespaced, Bound} {
		f := limitsIn(t, leaf, surroundings)
		expect("hidden ancestor's limit, "+surroundings.String(), f, hidden)
		if !f.Limits.Memory.Hidden {
			t.Errorf("%v: Hidden is false", surroundings)
		}
	}
	// A limit that changes is followed.
	c := leaf.Start(t, Plain, nil, "follow")
	var fo Followed
	c.Receive(t, &fo)
	if fo.Bounds.Memory != small {
		t.Errorf("sampler: memory %d, want %d", fo.Bounds.Memory, small)
	}
	leaf.SetMemory(t, small/2)
	c.Send(t, "go on")
	c.Receive(t, &fo)
	if fo.Bounds.Memory != small/2 || fo.Bounds.MemoryDepth != 0 {
		t.Errorf("sampler: memory %d at depth %d, want %d at 0", fo.Bounds.Memory, fo.Bounds.MemoryDepth, small/2)
	}
}

// throttledBy spins a child in leaf until the kernel has throttled the group
// holder some times, as seen from outside, and returns what the child says.
func throttledBy(t *T, holder, leaf *Group, surroundings Surroundings) Spun {
	c := leaf.Start(t, surroundings, nil, "spin", "2")
	var word string
	c.Receive(t, &word)
	awaitThrottling(t, holder, 6)
	c.Send(t, "sample")
	var s Spun
	c.Receive(t, &s)
	t.Logf("%s: own %v, ancestor %v, %d of %d periods (%s)", s.Throttling.Verdict, s.Throttling.Own, s.Throttling.Ancestor, s.Throttling.ThrottledPeriods, s.Throttling.Periods, s.Throttling.Evidence)
	return s
}

// awaitThrottling waits until the kernel has throttled a group, in which a child spins, so many times more.
func awaitThrottling(t *T, g *Group, times int64) {
	deadline := time.Now().Add(time.Minute)
	for before := throttledPeriods(t, g); throttledPeriods(t, g) < before+times; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Skipf("the machine is too busy: two spinning threads did not use up %s's quota %d times in a minute", g.Path(), times)
		}
	}
}

// throttledPeriods reads from outside how often a group was throttled.
func throttledPeriods(t *T, g *Group) int64 {
	b, err := os.ReadFile(filepath.Join(g.Dir("cpu"), "cpu.stat"))
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, value, _ := strings.Cut(string(b), "nr_throttled ")
	value, _, _ = strings.Cut(value, "\n")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		t.Fatalf("nr_throttled of %s: %v", g.Path(), err)
	}
	return n
}

func verdictOwn(e *Env, t *T, surroundings Surroundings) {
	g := e.Group(t)
	g.SetCPU(t, quotaFor(0.5), period)
	s := throttledBy(t, g, g, surroundings)
	th := s.Throttling
	if th.Verdict != cgroup.VerdictOwn || th.ThrottledPeriods == 0 || th.Own <= 0 {
		t.Errorf("verdict %+v, want own with throttled periods; from %+v to %+v", th, s.From, s.To)
	}
}

func verdictAncestor(e *Env, t *T, surroundings Surroundings) {
	top := e.Group(t)
	leaf := top.Sub(t, "leaf")
	top.SetCPU(t, quotaFor(0.5), period)
	s := throttledBy(t, top, leaf, surroundings)
	want := cgroup.VerdictAncestor
	if surroundings != Plain && !e.HasLocal(leaf) {
		want = cgroup.VerdictUnknown // out of sight, and this kernel does not tell
	}
	if s.Throttling.Verdict != want || want == cgroup.VerdictAncestor && s.Throttling.Ancestor <= 0 {
		t.Errorf("verdict %+v, want %s; from %+v to %+v", s.Throttling, want, s.From, s.To)
	}
}

func verdictNone(e *Env, t *T, surroundings Surroundings) {
	g := e.Group(t).Sub(t, "leaf")
	c := g.Start(t, surroundings, nil, "spin", "1")
	var word string
	c.Receive(t, &word)
	time.Sleep(300 * time.Millisecond) // three periods in which it could have been throttled
	c.Send(t, "sample")
	var s Spun
	c.Receive(t, &s)
	want := cgroup.VerdictNone
	if surroundings != Plain && !e.HasLocal(g) {
		want = cgroup.VerdictUnknown
	}
	if s.Throttling.Verdict != want {
		t.Errorf("verdict %+v, want %s; from %+v to %+v", s.Throttling, want, s.From, s.To)
	}
	t.Logf("%s (%s)", s.Throttling.Verdict, fmt.Sprint(s.Throttling.Evidence))
}
