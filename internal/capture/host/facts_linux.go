package host

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/service/cgroup"
)

// facts finds out on what the process runs. What it cannot read is left out.
func facts(pid int, warn func(code, text string)) *bundle.Host {
	h := &bundle.Host{PID: pid, OS: runtime.GOOS, Arch: runtime.GOARCH}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	proc := "/proc/" + strconv.Itoa(pid)
	ns, err1 := os.Readlink(proc + "/ns/net")
	own, err2 := os.Readlink("/proc/self/ns/net")
	h.OtherNetwork = err1 == nil && err2 == nil && ns != own
	f, err := limits.Gather(pid)
	if err != nil {
		warn(WarnHost, "the process's limits were not read: "+err.Error())
		return h
	}
	h.GOMAXPROCS, h.GOGC, h.GOMEMLIMIT = f.Env["GOMAXPROCS"], f.Env["GOGC"], f.Env["GOMEMLIMIT"]
	if f.Program != nil {
		h.Go, h.Build = f.Program.Go, f.Program.Build
	}
	if f.Limits != nil {
		bound(h, f.Limits)
	}
	return h
}

// bound takes in what bounds the process.
func bound(h *bundle.Host, l *cgroup.Limits) {
	c, m := &l.CPU, &l.Memory
	h.CPUs, h.Parallelism, h.QuotaHidden = c.Online, c.Parallelism, c.Hidden
	h.CgroupVersion, h.Group = c.Version.String(), c.Group
	if c.QuotaLevel >= 0 {
		lv := &c.Levels[c.QuotaLevel]
		h.QuotaCPUs, h.PeriodNS, h.QuotaFrom, h.QuotaDepth = c.Quota, int64(lv.Period), lv.File, lv.Depth
	}
	if m.Max > 0 {
		h.MemoryBytes = m.Max
		for _, b := range m.Bounds {
			if b.Won {
				h.MemoryFrom = b.File
			}
		}
	}
}
