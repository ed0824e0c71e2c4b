package quantity

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestCases holds each writer to the cases that the tool's test reads as well: it would catch a service that says "12 %" or GB
// where the tool says 12% and GiB.
func TestCases(t *testing.T) {
	text := must.Have(os.ReadFile("testdata/cases.txt"))(t)
	writers := map[string]func(float64) string{
		"percent": Percent, "share": Share, "cpus": CPUs, "binary": func(v float64) string { return Binary(int64(v)) },
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		v := must.Have(strconv.ParseFloat(f[1], 64))(t)
		check.Equal(t, writers[f[0]](v), f[2], "%s of %s", f[0], f[1])
	}
	check.Equal(t, Cost(0.00031), "0.03%", "a cost of 0.00031")
}
