package host

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/service/cgroup"
)

// TestOwnProcess: a recording has the number of samples that it reports, and each sample has the
// counters of the process's cgroup within the kernel's values before and after; counters that the
// kernel lacks are absent.
func TestOwnProcess(t *testing.T) {
	g, err := cgroup.NewSampler(cgroup.Options{})
	if err != nil {
		t.Skip(err)
	}
	defer g.Close()
	var before, after cgroup.Stat
	must.Do(t, g.Sample(&before))
	s := must.Have(Start(Options{PID: os.Getpid()}))(t)
	samples, rec := readBack(t, s.Stop())
	must.Do(t, g.Sample(&after))
	check.True(t, rec.Samples == len(samples.Points) && rec.Samples >= 2, "%d samples, %d are there", rec.Samples, len(samples.Points))
	for _, p := range samples.Points {
		for name, c := range map[string]struct {
			got       *int64
			low, high int64
			fields    cgroup.Fields
		}{
			"usage":             {p.UsageNS, int64(before.Usage), int64(after.Usage), cgroup.HasUsage},
			"periods":           {p.Periods, before.Periods, after.Periods, cgroup.HasBandwidth},
			"throttled periods": {p.ThrottledPeriods, before.ThrottledPeriods, after.ThrottledPeriods, cgroup.HasBandwidth},
			"throttled":         {p.ThrottledNS, int64(before.Throttled), int64(after.Throttled), cgroup.HasBandwidth},
			"local":             {p.LocalThrottledNS, int64(before.Local), int64(after.Local), cgroup.HasLocal},
			"ancestors'":        {p.AncestorThrottledNS, int64(before.AncestorThrottled), int64(after.AncestorThrottled), 0},
		} {
			if c.fields != 0 && before.Has&c.fields == 0 {
				if c.got != nil {
					t.Errorf("%s: %d, the kernel does not count them", name, *c.got)
				}
				continue
			}
			check.True(t, c.got != nil && *c.got >= c.low && *c.got <= c.high,
				"%s: %v, the kernel counted %d before and %d after", name, c.got, c.low, c.high)
		}
		check.Equal(t, p.AncestorsComplete, before.Has&cgroup.HasAncestors != 0, "all ancestors known")
	}
}

// TestReopenMovedGroup: each move to another cgroup is noticed, and only the first one gives a
// warning.
func TestReopenMovedGroup(t *testing.T) {
	s := &Sampler{pid: os.Getpid()}
	move := func() {
		const dir = "sys/fs/cgroup/a/"
		fsys := fstest.MapFS{}
		for name, text := range map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			dir + "cpu.stat": "usage_usec 1\n", dir + "cgroup.controllers": "cpu\n", dir + "cpu.max": "max 100000\n",
		} {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		s.group = must.Have(cgroup.NewSampler(cgroup.Options{FS: fsys}))(t)
		s.reopenMovedGroup()
		check.False(t, s.groupIndex > 0 && len(s.warnings) != 1, "in the same group: %v", s.warnings)
		fsys["proc/self/cgroup"] = &fstest.MapFile{Data: []byte("0::/b\n")}
		s.reopenMovedGroup()
	}
	if move(); s.groupIndex == 0 {
		t.Skip("this process has no group that can be sampled")
	}
	move()
	defer s.group.Close()
	check.True(t, s.groupIndex == 2 && len(s.warnings) == 1 && strings.Contains(s.warnings[0].Text, "moved to another cgroup"),
		"%d moves: %v", s.groupIndex, s.warnings)
	s.reopenMovedGroup()
	check.Equal(t, s.groupIndex, 2, "a move where there was none")
}

// TestParsedSocket: addresses are read by family, IPv4 within IPv6 becomes IPv4, and a short message
// gives no socket.
func TestParsedSocket(t *testing.T) {
	b := make([]byte, diagMsgLen)
	b[1] = 1
	copy(b[4:], []byte{0x1f, 0x90, 0, 80})
	copy(b[8:], []byte{127, 0, 0, 1})
	copy(b[24:], []byte{192, 0, 2, 7})
	binary.NativeEndian.PutUint32(b[68:], 4711)
	six := bytes.Clone(b)
	copy(six[8:], netip.MustParseAddr("2001:db8::1").AsSlice())
	copy(six[24:], netip.MustParseAddr("::ffff:192.0.2.9").AsSlice())
	b[0], six[0] = unix.AF_INET, unix.AF_INET6
	for want, msg := range map[string][]byte{"127.0.0.1:8080 192.0.2.7:80": b, "[2001:db8::1]:8080 192.0.2.9:80": six} {
		s, ok := parseDiagSocket(msg)
		check.True(t, ok && s.Local.String()+" "+s.Remote.String() == want && s.inode == 4711 && s.state == 1, "%+v, want %s", s, want)
	}
	if s, ok := parseDiagSocket(b[:diagMsgLen-1]); ok {
		t.Errorf("a short message is %+v", s)
	}
}
