package cgroup

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

func FuzzMembership(f *testing.F) {
	for _, s := range []string{
		"0::/\n", "12:cpu,cpuacct:/docker/x\n0::/../..\n", "1:name=systemd:/a:b\n", "0::/x (deleted)\n", ":::\n\x00", "0::/a", "5:cpu:rel\n", strings.Repeat("0::/x\n", 100),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, bad := parseMembership(b)
		var back strings.Builder
		for _, m := range ms {
			must.True(t, m.id >= 0 && strings.HasPrefix(m.path, "/") && !strings.ContainsAny(m.path, "\n\x00"), "parsed %+v", m)
			path := m.path
			if m.deleted {
				path += " (deleted)"
			}
			fmt.Fprintf(&back, "%d:%s:%s\n", m.id, strings.Join(m.controllers, ","), path)
		}
		// The parsed lines, written again, parse to the same.
		reparsed, bad2 := parseMembership([]byte(back.String()))
		must.True(t, bad2 == 0 && fmt.Sprint(reparsed) == fmt.Sprint(ms), "%q: %+v, %d bad; again %+v, %d bad", b, ms, bad, reparsed, bad2)
	})
}

// escapePath is show_path of the kernel for the bytes that it escapes.
func escapePath(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if strings.IndexByte(" \t\n\\#", s[i]) >= 0 {
			fmt.Fprintf(&b, `\%03o`, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func FuzzUnescape(f *testing.F) {
	for _, s := range []string{"", "/a b", `\`, `a\040b`, "\\134", "\t#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.IndexByte(s, 0) < 0 {
			if got, err := unescape([]byte(escapePath(s))); err != nil || got != s {
				t.Fatalf("%q escaped is %q, unescaped %q, %v", s, escapePath(s), got, err)
			}
		}
		unescape([]byte(s)) // as it is: any answer, no panic
	})
}

func FuzzMounts(f *testing.F) {
	for _, s := range []string{
		"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n",
		"31 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
		"34 30 0:31 /a\\040b /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
		"1 2 3 4 5 6 - cgroup", " - cgroup2 x y", "x\n\n\x00 - cgroup a cpu", "1 1 1 /\\9 / r - cgroup2 c r",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ms, _ := parseMounts(b)
		var back strings.Builder
		for _, m := range ms {
			if !strings.HasPrefix(m.root, "/") || !strings.HasPrefix(m.point, "/") || m.version != V1 && m.version != V2 {
				t.Fatalf("parsed %+v", m)
			}
			kind, super := "cgroup2", "rw"
			if m.version == V1 {
				kind, super = "cgroup", strings.Join(m.controllers, ",")
			}
			fmt.Fprintf(&back, "1 2 0:1 %s %s rw - %s none %s\n", escapePath(m.root), escapePath(m.point), kind, super)
		}
		reparsed, bad := parseMounts([]byte(back.String()))
		must.True(t, bad == 0 && fmt.Sprint(reparsed) == fmt.Sprint(ms),
			"%q: %+v; again %+v, %d bad, from %q", b, ms, reparsed, bad, back.String())
	})
}

func FuzzCPUList(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,5,7-8\n", "3-1", "0-1048575", "0-1,0-1", "1-,2", "-1", "99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseCPUList(s)
		must.True(t, n >= 0 && n <= maxCPUs, "%q: %d CPUs", s, n)
		// Another way to count, for lists that it can afford.
		if err != nil || len(s) > 64 || n > 4096 {
			return
		}
		set := map[int]bool{}
		for _, part := range strings.Split(strings.TrimSpace(s), ",") {
			lo, hi, ranged := strings.Cut(part, "-")
			a, _ := strconv.Atoi(lo)
			z := a
			if ranged {
				z, _ = strconv.Atoi(hi)
			}
			for i := a; i <= z && strings.TrimSpace(s) != ""; i++ {
				set[i] = true
			}
		}
		must.True(t, len(set) == n, "%q: %d CPUs, want %d", s, n, len(set))
	})
}

func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"max 100000\n", "50000 100000\n", "0 0", "-1 -1", "9223372036854775807 1", "18446744073709551615\n", "max", "-1\n", "1e3", " 5", ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, p, err := parseCPUMax(b)
		if err == nil && (q < 0 || p <= 0) || err != nil && (q != 0 || p != 0) {
			t.Fatalf("cpu.max %q: %v %v %v", b, q, p, err)
		}
		if err == nil && q < math.MaxInt64 && p < math.MaxInt64 {
			text := "max"
			if q > 0 {
				text = strconv.FormatInt(q.Microseconds(), 10)
			}
			q2, p2, err := parseCPUMax(fmt.Appendf(nil, "%s %d\n", text, p.Microseconds()))
			must.True(t, err == nil && q2 == q && p2 == p, "cpu.max %q: %v %v; again %v %v %v", b, q, p, q2, p2, err)
		}
		if q, err := parseQuota(b); err == nil && q < 0 || err != nil && q != 0 {
			t.Fatalf("quota %q: %v %v", b, q, err)
		}
		if p, err := parsePeriod(b); err == nil && p <= 0 || err != nil && p != 0 {
			t.Fatalf("period %q: %v %v", b, p, err)
		}
		if n, limited, err := parseMemory(b); n < 0 || n >= noLimit || (err != nil || !limited) && n != 0 {
			t.Fatalf("memory %q: %d %v %v", b, n, limited, err)
		}
		if r := ratio(q, p); math.IsNaN(r) || math.IsInf(r, 0) || r < 0 {
			t.Fatalf("%q: %v CPUs", b, r)
		}
	})
}

func FuzzCounters(f *testing.F) {
	for _, s := range []string{
		"usage_usec 1\nnr_periods 5\nnr_throttled 3\nthrottled_usec 9\n", "nr_periods 5\nnr_throttled 3\nthrottled_time 9\nnr_bursts 1\nburst_time 1\n",
		"throttled_usec 18446744073709551615\n", "x\n y\n\n \n", "nr_periods -5\nnr_periods 99999999999999999999999\n", "\x00\x00",
	} {
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		from, to := readCounters(a), readCounters(b)
		for _, st := range []*Stat{&from, &to} {
			st.Local, st.AncestorThrottledPeriods, st.AncestorThrottled = st.Throttled, st.ThrottledPeriods, st.Throttled
		}
		th := Compare(&from, &to)
		switch th.Verdict {
		case VerdictOwn, VerdictAncestor, VerdictNone, VerdictUnknown:
		default:
			t.Fatalf("verdict %q", th.Verdict)
		}
		must.True(t, th.Evidence != "" && th.Own >= 0 && th.Ancestor >= 0 && th.Periods >= 0 && th.ThrottledPeriods >= 0,
			"%+v from %+v to %+v", th, from, to)
		must.False(t, th.Verdict == VerdictNone && (th.Own != 0 || th.Ancestor != 0), "none, but %+v", th)
	})
}

// FuzzRead reads the limits of a machine with arbitrary files.
func FuzzRead(f *testing.F) {
	f.Add("0::/a\n", "1 2 0:1 / /cg rw - cgroup2 c rw\n", "50000 100000\n", "268435456\n", "Cpus_allowed_list:\t0-3\n", "0-3\n")
	f.Add("4:cpu:/a\n3:memory:/a\n2:cpuset:/a", "1 2 0:1 / /cg rw - cgroup c rw,cpu,memory,cpuset\n", "50000\n", "-1", "Cpus_allowed_list:\t7\n", "9-3\n")
	f.Add("0::/../a\n", "1 2 0:1 /.. /cg rw - cgroup2 c rw\n", "\x00", "\xff", "", "")
	f.Fuzz(func(t *testing.T, group, mounts, cpu, mem, status, list string) {
		files := fstest.MapFS{}
		add := func(name, s string) { files[name] = &fstest.MapFile{Data: []byte(s)} }
		add("proc/self/cgroup", group)
		add("proc/self/mountinfo", mounts)
		add("proc/self/status", status)
		add("proc/meminfo", status)
		add("sys/devices/system/cpu/online", list)
		for _, d := range []string{"cg/", "cg/a/", "cg/a/b/"} {
			for _, n := range []string{"cgroup.procs", "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat", "cpu.stat.local"} {
				add(d+n, cpu)
			}
			for _, n := range []string{"memory.max", "memory.high", "memory.swap.max", "memory.limit_in_bytes", "memory.stat", "memory.current"} {
				add(d+n, mem)
			}
			add(d+"cpuset.cpus.effective", list)
			add(d+"cpuset.effective_cpus", list)
		}
		o := Options{FS: files}
		if l, err := Read(o); err == nil {
			checkInvariants(t, l)
		}
		s, err := NewSampler(o)
		if err != nil {
			return
		}
		defer s.Close()
		var a, b Stat
		var bo Tightest
		var m MemoryStat
		s.Sample(&a)
		s.Sample(&b)
		s.SampleLimits(&bo)
		s.SampleMemory(&m)
		s.SampleMemoryAt(1, &m)
		var p Pressure
		s.SamplePressure(&p)
		must.True(t, p.CPU >= 0 && p.Memory >= 0 && p.MemoryFull >= 0, "%+v", p)
		must.False(t, s.Moved(), "moved, though nothing changed")
		Compare(&a, &b)
	})
}

// checkInvariants checks conditions that hold for the limits of every machine.
func checkInvariants(t *testing.T, l *Limits) {
	t.Helper()
	c := &l.CPU
	won := 0
	for _, b := range c.Bounds {
		if b.Won {
			won++
			check.True(t, b.CPUs == c.Effective, "bound %+v won, effective is %v", b, c.Effective)
		}
		check.False(t, b.CPUs > 0 && b.CPUs < c.Effective, "bound %+v is tighter than the effective %v", b, c.Effective)
		check.True(t, b.Why != "", "bound %+v has no reason", b)
	}
	check.True(t, won <= 1 && (won == 0) == (c.Effective == 0), "%d bounds won, effective %v: %+v", won, c.Effective, c.Bounds)
	tight, field := 0.0, -1
	for i, lv := range c.Levels {
		if lv.CPUs > 0 && (field < 0 || lv.CPUs < tight) {
			tight, field = lv.CPUs, i
		}
		if lv.Quota < 0 || lv.Period < 0 || lv.Burst < 0 || lv.Quota > 0 && lv.Period == 0 || lv.Quota%time.Microsecond != 0 && lv.Quota != math.MaxInt64 {
			t.Errorf("level %+v", lv)
		}
		if i > 0 && lv.Depth != c.Levels[i-1].Depth+1 {
			t.Errorf("depths jump from %d to %d", c.Levels[i-1].Depth, lv.Depth)
		}
	}
	check.True(t, tight == c.Quota && field == c.QuotaLevel, "quota %v at %d, want %v at %d", c.Quota, c.QuotaLevel, tight, field)
	if n := c.RuntimeDefault(); n < 0 || n > c.Parallelism {
		t.Errorf("runtime default %d of %d CPUs", n, c.Parallelism)
	}
	m := &l.Memory
	won = 0
	for _, b := range m.Bounds {
		if b.Won {
			won++
			check.True(t, b.Bytes == m.Effective, "bound %+v won, effective is %d", b, m.Effective)
		}
		check.False(t, b.Limited && b.Bytes < m.Effective && !strings.Contains(b.Why, "does not bind"),
			"bound %+v is tighter than the effective %d", b, m.Effective)
		check.True(t, b.Why != "", "bound %+v has no reason", b)
	}
	if won > 1 || won == 0 && m.Effective != 0 {
		t.Errorf("%d bounds won: %+v", won, m.Bounds)
	}
}
