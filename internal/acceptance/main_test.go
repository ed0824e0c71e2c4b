package acceptance_test

import (
	"log"
	"os"
	"testing"
)

// TestMain runs the tests in the root of the repository, where the recordings, programs and pages are.
func TestMain(m *testing.M) {
	if _, err := os.Stat("ARCHITECTURE.md"); err != nil { // a process of a fuzz test begins where its parent is
		if err := os.Chdir("../.."); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(m.Run())
}
