package limitscompare

import (
	"strings"

	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/service/cgroup"
)

// Observation is what everybody makes of one machine.
type Observation struct {
	// NumCPU is the number of CPUs that the process may use.
	NumCPU int
	// Go is the GOMAXPROCS at the runtime's start.
	Go int
	// Automaxprocs and Automemlimit are the libraries' settings, 0 if they set nothing.
	Automaxprocs    int
	AutomaxprocsErr string
	Automemlimit    int64
	AutomemlimitErr string
	// Auto is the GOMAXPROCS of a program that imports service/auto; 0 if there was no such run.
	Auto int
	// Limits is the result of package cgroup, nil with an error.
	Limits  *cgroup.Limits
	OursErr string
	// Outside is the result of `whylate limits --pid` for the process, outside its container; nil if it was not run.
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
