package uprobes

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/host"
)

// Record records a process with probes. First it counts for countTime what the probes would cost; a share of its CPUs above budget is ErrCostly,
// unless opt.Force is set. If ctx ends during the recording, it returns both the events until then and the context's error.
func Record(ctx context.Context, opt Options) (*Result, error) {
	t, err := openTarget(opt.PID)
	if err != nil {
		return nil, err
	}
	defer t.file.Close() // names and lines are read after the recording
	if err := checkCapabilities(); err != nil {
		return nil, err
	}
	if err := checkNamespace(); err != nil {
		return nil, err
	}
	estimate, err := t.estimate(ctx)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if estimate > budget && !opt.Force {
		return nil, fmt.Errorf("%w: the probes would take about %.0f %% of the %s CPUs that process %d may use, more than %.0f %%: record when it has less load, use its profiling endpoint (the runtime's tracer costs a third), or record anyway with --force",
			ErrCostly, 100*estimate, strconv.FormatFloat(t.cpus, 'f', -1, 64), opt.PID, 100*budget)
	}
	return t.record(ctx, opt)
}

// checkCapabilities returns an error that names the capabilities that are missing.
func checkCapabilities() error {
	missing := host.MissingBPFCapabilities()
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%w: recording without the process's help needs %s: run as root, or give the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE", ErrPermission, strings.Join(missing, " and "))
}

// checkNamespace returns an error if process ids here are not those of the kernel, by which the BPF programs know the process.
func checkNamespace() error {
	if n, err := host.NamespaceNumber(os.Getpid(), "pid"); err == nil && n != host.FirstPIDNamespace {
		return fmt.Errorf("%w: whylate runs in a PID namespace of its own: run it on the host, or in a pod with hostPID: true", ErrSystem)
	}
	return nil
}

// estimate counts starts of goroutines for countTime, for which it blocks, and returns the share, from 0 to 1 and above, of the process's CPUs
// (t.cpus) that all probes would take.
func (t *target) estimate(ctx context.Context) (float64, error) {
	p, err := load(t, []string{"count_start"})
	if err != nil {
		return 0, err
	}
	defer p.close()
	for _, at := range t.points {
		if at.program == "start" {
			if err := p.attach(t, "count_start", at.offset); err != nil {
				return 0, err
			}
		}
	}
	begin := time.Now()
	select {
	case <-time.After(countTime):
	case <-ctx.Done():
	}
	_, starts := p.counters()
	return float64(starts) * startCost.Seconds() / time.Since(begin).Seconds() / t.cpus, nil
}
