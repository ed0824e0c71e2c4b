package queues

import (
	"time"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A SyscallCount adds up the system calls on the paths of a group's requests. A call of some microseconds mostly pays for
// entering the kernel, so that many of them, each with a few bytes, take far longer than a few with all.
type SyscallCount struct {
	Requests, Calls   int64
	CallNS, LatencyNS int64
}

// manySyscalls is how many system calls of a request are many, maxSmallSyscall how long each may take on average.
const (
	manySyscalls    = 100
	maxSmallSyscall = 60 * time.Microsecond
)

// AreMany reports whether small system calls are a large part of the requests.
func (s *SyscallCount) AreMany() bool {
	return s != nil && s.Requests >= threshold.SmallSample && s.Calls >= manySyscalls*s.Requests && s.CallNS < int64(maxSmallSyscall)*s.Calls &&
		float64(s.CallNS) >= threshold.MajorShare*float64(s.LatencyNS)
}

// add adds another sum.
func (s *SyscallCount) add(addend *SyscallCount) {
	s.Requests, s.Calls, s.CallNS, s.LatencyNS = s.Requests+addend.Requests, s.Calls+addend.Calls, s.CallNS+addend.CallNS, s.LatencyNS+addend.LatencyNS
}

// addSyscallCount adds the system calls of a request.
func (p *workerSum) addSyscallCount(w *path.WalkResult) {
	count := &SyscallCount{Requests: 1, LatencyNS: w.Req.End - w.Req.Start}
	for i := range w.Steps {
		if step := &w.Steps[i]; step.Kind == critpath.Syscall {
			count.Calls, count.CallNS = count.Calls+1, count.CallNS+step.End-step.Start
		}
	}
	entry.GetOrAdd(p.syscallCounts, w.Group).add(count)
}

// SyscallCount returns the system calls of a group; nil if none of its requests was walked. Merge must have been called.
func (s *Sum) SyscallCount(group path.GroupID) *SyscallCount {
	return s.workers[0].syscallCounts[group]
}
