// Command traceprog runs one real program after another, each with an activity
// that execution traces show in their own way, and records a trace of it.
// The decoder, the request finder and the walk are tested on these traces,
// against the reference reader and against the program's own count of what it
// did, which it prints as JSON.
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
