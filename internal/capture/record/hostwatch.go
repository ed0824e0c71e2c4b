package record

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	hostsamples "github.com/whylate/whylate/internal/capture/host"
)

// A HostWatch takes host samples, and with Options.Kernel the kernel's events, of the recorded process
// if that process is on this host. It never makes a recording fail: missing samples and events are warnings.
type HostWatch struct {
	sampler       *hostsamples.Sampler
	startKernel   func(pid int) (KernelProbe, error) // nil if no events are wanted
	kernelProbe   KernelProbe
	kernel        KernelEvents
	candidatePIDs []int // processes that listen on the port; the trace's connection decides
	warnings      []bundle.Warning
	finalCheck    func() string // a check to make at the end of the trace

	finishOnce sync.Once
	recording  *hostsamples.Recording
}

// KernelEvents are the kernel's events of a recording. Data is empty if there are none.
type KernelEvents struct {
	Data  []byte // kernel.bin
	Facts *bundle.Kernel
}

// WarnKernel is the code of warnings about the kernel's events.
const WarnKernel = "kernel-events"

// WatchHost starts to sample Options.PID or else the process that the target leads to, if that is on this host. The watch lasts until Finish. It is
// nil, which all methods accept, if there is no process to sample.
func WatchHost(ctx context.Context, target string, opt Options) *HostWatch {
	if opt.NoHost {
		return nil
	}
	w := &HostWatch{startKernel: opt.Kernel}
	if opt.PID > 0 {
		w.startSampler(opt.PID) // the user's choice needs no check
		return w
	}
	endpoint, urlLogin, err := ParseEndpoint(target)
	if err != nil || opt.Proxy != "" && opt.Proxy != "none" {
		return w.onlyKernelWarning("a proxy is between this host and the service")
	}
	_, name, portText := origin(&endpoint.base)
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return w.onlyKernelWarning("the URL has no port")
	}
	addrs := hostsamples.LocalAddrs(ctx, name)
	if len(addrs) == 0 {
		return w.onlyKernelWarning("the service is on another machine: record on that one")
	}
	listeners, err := hostsamples.Listeners(addrs, uint16(port))
	switch {
	case err != nil:
		w.warn(err.Error())
	case len(listeners.PIDs) == 1:
		// Check before the trace begins, or the trace would have the request of the check.
		if w.startSampler(listeners.PIDs[0]); w.sampler != nil {
			if mismatch := checkBeforeTrace(ctx, endpoint, urlLogin, opt, listeners.PIDs[0]); mismatch != "" {
				w.sampler.Stop()
				w.stopKernel()
				w.sampler, w.kernel = nil, KernelEvents{}
				w.warn(mismatch)
			}
		}
	case len(listeners.PIDs) > 1:
		w.candidatePIDs = listeners.PIDs
	case listeners.Unreadable > 0:
		w.warn(fmt.Sprintf("this user may not see which process listens on port %d: run as the service's user or as root, or name the process with --pid", port))
	default:
		w.warn(fmt.Sprintf("no visible process listens on port %d (is it forwarded into a container?): name it with --pid, or leave the samples out with --no-host", port))
	}
	return w
}

// warn adds a warning: no host samples (and no kernel events, if they were wanted), because of text.
func (w *HostWatch) warn(text string) {
	prefix := "no host samples: "
	if w.startKernel != nil {
		prefix = "no host samples and no kernel events: "
	}
	w.warnings = append(w.warnings, bundle.Warning{Code: hostsamples.WarnHost, Text: prefix + text})
}

// onlyKernelWarning adds the warning about missing kernel events, because of text, and returns w, which has no sampler; nil, without a warning, if
// kernel events are not wanted.
func (w *HostWatch) onlyKernelWarning(text string) *HostWatch {
	if w.startKernel == nil {
		return nil
	}
	w.warnKernel(text)
	return w
}

func (w *HostWatch) warnKernel(text string) {
	w.warnings = append(w.warnings, bundle.Warning{Code: WarnKernel, Text: "no kernel events: " + text})
}

// stopKernel ends the recording of the kernel's events, if there is one, and sets w.kernel.
func (w *HostWatch) stopKernel() {
	if w.kernelProbe == nil {
		return
	}
	var warnings []bundle.Warning
	w.kernel.Data, w.kernel.Facts, warnings = w.kernelProbe.Stop()
	w.warnings = append(w.warnings, warnings...)
	w.kernelProbe = nil
}

// startSampler starts the sampling of a process, and the kernel probe if it was wanted. If one cannot start, it adds a warning
// with the reason; without the sampler the probe does not start either.
func (w *HostWatch) startSampler(pid int) {
	s, err := hostsamples.Start(hostsamples.Options{PID: pid})
	if err != nil {
		w.warn(err.Error())
		return
	}
	w.sampler = s
	if w.startKernel == nil {
		return
	}
	if w.kernelProbe, err = w.startKernel(pid); err != nil {
		w.kernelProbe = nil
		w.warnKernel(err.Error())
	}
}

// AttachStream passes the trace's connection to the watch. If several processes listen, the watch begins to sample the one that has accepted the
// connection, for which it waits.
func (w *HostWatch) AttachStream(s *Stream) {
	if w == nil {
		return
	}
	if w.candidatePIDs != nil {
		w.startAcceptor(s)
	}
	if w.sampler == nil {
		return
	}
	w.sampler.SetTraceRequest(s.Result().Start)
	if w.candidatePIDs != nil {
		w.finalCheck = func() string { return s.client.checkProcess(s.ctx, w.sampler.PID()) }
	}
}

// acceptPatience bounds the wait for a process to accept a connection that the service has already
// answered on.
const acceptPatience = 300 * time.Millisecond

// startAcceptor samples, of several processes that share a port, the one that accepted the trace's connection. It blocks until one has, for
// acceptPatience at most, and then warns.
func (w *HostWatch) startAcceptor(s *Stream) {
	local, remote, ok := s.connectionEnds()
	for deadline := time.Now().Add(acceptPatience); ok && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		found, err := hostsamples.Acceptor(local, remote)
		if err != nil {
			break
		}
		if len(found.PIDs) == 1 {
			w.startSampler(found.PIDs[0])
			return
		}
	}
	list := make([]string, 0, len(w.candidatePIDs))
	for _, pid := range w.candidatePIDs[:min(len(w.candidatePIDs), 10)] {
		list = append(list, strconv.Itoa(pid))
	}
	w.warn(fmt.Sprintf("%d processes listen on this port (%s): name one with --pid", len(w.candidatePIDs), strings.Join(list, ", ")))
}

// Finish ends sampling and returns the samples and all warnings; further calls return the same. The recording is nil if there are no samples, or if
// they turn out to be of another process than the one that sent the trace.
func (w *HostWatch) Finish() (*hostsamples.Recording, []bundle.Warning) {
	if w == nil {
		return nil, nil
	}
	w.finishOnce.Do(func() {
		if w.sampler == nil {
			return
		}
		w.stopKernel()
		w.recording = w.sampler.Stop()
		w.warnings = append(w.warnings, w.recording.Warnings...)
		if w.finalCheck != nil {
			if mismatch := w.finalCheck(); mismatch != "" {
				w.recording, w.warnings, w.kernel = nil, nil, KernelEvents{}
				w.warn(mismatch)
			}
		}
	})
	return w.recording, w.warnings
}

// Kernel returns the kernel's events; they are empty before Finish.
func (w *HostWatch) Kernel() KernelEvents {
	if w == nil {
		return KernelEvents{}
	}
	return w.kernel
}

// Data ends sampling and returns the content of host.jsonl; nil without samples.
func (w *HostWatch) Data() []byte {
	if rec, _ := w.Finish(); rec != nil {
		return rec.Data
	}
	return nil
}

// connectionEnds returns both ends of the trace's connection; false before it is open and if it is not a TCP connection.
func (s *Stream) connectionEnds() (local, remote netip.AddrPort, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return local, remote, false
	}
	a, ok1 := s.conn.LocalAddr().(*net.TCPAddr)
	b, ok2 := s.conn.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return local, remote, false
	}
	return a.AddrPort(), b.AddrPort(), true
}
