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

// facts describes the kernel, the process's Go version, build and environment (GOMAXPROCS, GOGC, GOMEMLIMIT), its limits, and whether its network
// namespace is another one. If the limits cannot be gathered, it calls warn, and only the kernel and the namespace remain.
func facts(pid int, warn func(code, text string)) *bundle.Host {
	h := &bundle.Host{PID: pid, OS: runtime.GOOS, Arch: runtime.GOARCH}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	proc := "/proc/" + strconv.Itoa(pid)
	namespace, err1 := os.Readlink(proc + "/ns/net")
	ownNamespace, err2 := os.Readlink("/proc/self/ns/net")
	h.OtherNetwork = err1 == nil && err2 == nil && namespace != ownNamespace
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
		addLimits(h, f.Limits)
	}
	return h
}

// addLimits adds the CPU quota and the memory limit that apply to the process.
func addLimits(h *bundle.Host, l *cgroup.Limits) {
	cpu, memory := &l.CPU, &l.Memory
	h.CPUs, h.Parallelism, h.HasHiddenGroups = cpu.Online, cpu.Parallelism, cpu.Hidden
	h.CgroupVersion, h.Group = cpu.Version.String(), cpu.Group
	if cpu.QuotaLevel >= 0 {
		lv := &cpu.Levels[cpu.QuotaLevel]
		h.QuotaCPUs, h.QuotaPeriodNS, h.QuotaFile, h.QuotaDepth = cpu.Quota, int64(lv.Period), lv.File, lv.Depth
	}
	if memory.Max > 0 {
		h.MemoryBytes = memory.Max
		for _, b := range memory.Bounds {
			if b.Won {
				h.MemoryFile = b.File
			}
		}
	}
}
