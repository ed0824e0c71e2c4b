package timeline

import (
	"testing"

	"github.com/whylate/whylate/internal/testprog"
)

// programs are the scenarios of lab/traceprog whose traces are compared with
// the reference reader; those of a name that begins with cgo- need a C
// compiler and are skipped without one.
var programs = []struct {
	name string
	args []string
}{
	{"allocfree", []string{"-d", "50ms"}},
	{"channels", nil}, {"cpusamples", nil}, {"deadlines", nil}, {"dns", nil}, {"exec", nil}, {"filesyscall", nil},
	{"flight", nil}, {"gcstress", nil}, {"generations", nil}, {"goroutines10k", nil}, {"grpc", nil}, {"grpc-workers", nil},
	{"http1", nil}, {"http1", []string{"-procs", "1"}}, {"http1", []string{"-procs", "8", "-early"}},
	{"http1-body", nil}, {"http1-close", nil}, {"http1-hijack", nil}, {"http1-middleware", nil}, {"http1-pipelined", nil}, {"http1-tls", nil},
	{"http2", nil}, {"http2-h2c", nil}, {"http2-xnet", nil}, {"idle", nil}, {"iterpull", nil}, {"iterpull", []string{"-early"}}, {"locks", nil},
	{"osthreads", nil}, {"poll", nil}, {"preempt", nil}, {"procschange", nil}, {"stw", nil}, {"tasks", nil}, {"timers", nil},
	{"wrap", []string{"-d", "3s"}},
	{"cgo-block", nil}, {"cgo-callback", nil}, {"cgo-calls", nil}, {"cgo-dns", nil}, {"cgo-threads", nil}, {"cgo-threads", []string{"-early"}},
}

func TestOraclePrograms(t *testing.T) {
	for i, p := range programs {
		if testing.Short() && i%5 != 0 {
			continue // under the race detector: the same code, ten times slower
		}
		name := p.name
		args := p.args
		for _, a := range args {
			name += a
		}
		if p.name != "wrap" && p.name != "allocfree" {
			args = append([]string{"-d", "200ms"}, args...)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := testprog.Trace(t, p.name, args...)
			checkAgainstReference(t, data)
			checkReaderCuts(t, data)
			checkCuts(t, data, cutOffsets(data, 10))
		})
	}
}
