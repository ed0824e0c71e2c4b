package timeline

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestOraclePrograms compares traces of real programs with the reference reader's view of them.
func TestOraclePrograms(t *testing.T) {
	cuts := 10
	if testing.Short() {
		cuts = 3
	}
	for i, p := range testprog.Programs() {
		if testing.Short() && i%10 != 7 {
			continue // other programs run the same code
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			data := testprog.Trace(t, p.Name)
			checkAgainstReference(t, data)
			checkReaderCuts(t, data)
			checkCuts(t, data, cutOffsets(data, cuts))
		})
	}
}
