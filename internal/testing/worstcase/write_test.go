package worstcase

import (
	"flag"
	"os"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

var (
	shapeName = flag.String("shape", "", "the worst case that TestWrite writes")
	shapeSize = flag.Int("n", 10_000, "its size")
	shapeFile = flag.String("o", "", "the file to write")
)

// TestWrite writes one of the traces to a file, to try commands on it:
//
//	go test ./internal/testing/worstcase -run TestWrite -args -shape waiting -n 1000000 -o /tmp/waiting.trace
func TestWrite(t *testing.T) {
	if *shapeFile == "" {
		t.Skip("no file named")
	}
	for _, s := range append(requestShapes, volumeShapes...) {
		if s.name == *shapeName {
			must.Do(t, os.WriteFile(*shapeFile, build(t, s.make, *shapeSize), 0o644))
			return
		}
	}
	t.Fatalf("no shape is named %q", *shapeName)
}
