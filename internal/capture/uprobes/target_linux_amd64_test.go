package uprobes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestOpenTargetClosesFile: if a function has no place for a probe, the program's file is closed.
func TestOpenTargetClosesFile(t *testing.T) {
	complete := runtimeFunctions
	defer func() { runtimeFunctions = complete }()
	runtimeFunctions = append(slices.Clip(complete), complete[0])
	runtimeFunctions[len(complete)].function = "runtime.missing"
	_, err := openTarget(os.Getpid())
	must.True(t, err != nil, "the program has a function runtime.missing")
	executable := must.Have(os.Executable())(t)
	for _, link := range must.Have(filepath.Glob("/proc/self/fd/*"))(t) {
		name, _ := os.Readlink(link)
		check.True(t, name != executable, "%s is open: %v", name, err)
	}
}
