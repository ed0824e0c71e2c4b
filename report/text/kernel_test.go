package text

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/report"
)

func TestThreadStates(t *testing.T) {
	spans := threadStates(&report.Kernel{RunningNS: 3114e6, CPUNS: 1476e6, CPUWaitNS: 1634e6, DiskNS: 4e6})
	var text strings.Builder
	for _, s := range spans {
		text.WriteString(s.text)
	}
	if want := "by the kernel's events, goroutines that showed as running for 3.11s had a CPU for 1.48s, waited for one for 1.63s, waited for a disk for 4.00ms"; text.String() != want {
		t.Errorf("%s, want %s", text.String(), want)
	}
}
