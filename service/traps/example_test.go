package traps_test

import (
	"fmt"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/traps"
)

// A limit of one CPU, and a program of Go 1.22 with a P for each of 64 CPUs.
func ExampleFind() {
	limits := &cgroup.Limits{}
	limits.CPU.Quota, limits.CPU.Parallelism = 1, 1
	for _, t := range traps.Find(traps.Facts{Limits: limits, Go: "go1.22.4", Procs: 64, ProcsBy: traps.SetByRuntime, NumCPU: 64}) {
		fmt.Println(t.Severity, t.Code)
	}
	// Output:
	// low old-go
	// info numcpu-frozen
}
