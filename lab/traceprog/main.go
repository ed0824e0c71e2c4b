// Command traceprog runs real programs, each with an activity that execution
// traces show in a specific way, and records a trace of each. The tests of the
// decoder, the request finder and the walk use these traces. They compare the
// results with the reference reader and with the program's own counts, which it
// prints as JSON.
package main

import (
	"os"
	"slices"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == childVerb {
		os.Exit(child(os.Args[2:], os.Stdin, os.Stdout))
	}
	os.Exit(rig.Main(os.Args[1:], os.Stdout, os.Stderr, scenarios()))
}

func scenarios() []rig.Scenario {
	return slices.Concat(httpScenarios(), profileScenarios(), http2Scenarios(), grpcScenarios(), runtimeScenarios(), syncScenarios(), taskScenarios(), markScenarios(), snapshotScenarios(), hungScenarios(), poolsScenarios(), ioScenarios())
}
