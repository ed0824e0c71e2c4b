package limitscompare

import (
	"strings"

	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/service/cgroup"
)

// Observation is what everybody makes of one machine.
type Observation struct {
	// NumCPU is what the process really may run on.
	NumCPU int
	// Go is the GOMAXPROCS that the runtime began with.
	Go int
	// Automaxprocs and Automemlimit are what the libraries set, 0 where they
	// set nothing; their errors stand beside them.
	Automaxprocs    int
	AutomaxprocsErr string
	Automemlimit    int64
	AutomemlimitErr string
	// Auto is the GOMAXPROCS of a program that imports service/auto; 0 where
	// it was not run.
	Auto int
	// Limits is our answer, nil with an error.
	Limits  *cgroup.Limits
	OursErr string
	// Outside is what `whylate limits --pid` says of the process, asked from
	// outside its container; nil where nobody asked.
	Outside *limits.Answer
}

// MachineCPUs is how many CPUs a machine's expectations allow the process;
// many if they do not say.
func MachineCPUs(txtar string) int {
	_, rest, ok := strings.Cut(txtar, " parallelism=")
	n := 0
	for ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' && n < 1<<20 {
		n = 10*n + int(rest[0]-'0')
		rest = rest[1:]
	}
	if n == 0 {
		return 1 << 20
	}
	return n
}
