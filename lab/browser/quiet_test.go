package browser

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestQuietPage: where no request is late, the page does not ask for a change and promises no gain; where a peer is slow, it says whom
// to ask.
func TestQuietPage(t *testing.T) {
	browser := chromium(t)
	for _, c := range []struct {
		service, verdictHeading, findingsHeading string
		asks                                     bool
	}{
		{"healthy", "Where requests spent their time", "What to change", false},
		{"slow-database", "Where requests waited", "Whom to ask", true},
		{"middleware", "Why requests were late", "What to change", true},
	} {
		rep, _, _ := serveTrace(t, testprog.Service(t, c.service).Trace, c.service)
		p := open(t, browser, rep, 1280, false, "")
		for selector, want := range map[string]string{"#verdict h2": c.verdictHeading, "#findings h2": c.findingsHeading} {
			if got := evaluate[string](p, `document.querySelector('`+selector+`').textContent`); !strings.HasPrefix(got, want) {
				t.Errorf("%s: the heading is %q, want %q", c.service, got, want)
			}
		}
		check.Equal(t, evaluate[bool](p, `document.querySelector('#page').textContent.includes('Do: ')`), c.asks, "%s: the page asks for something", c.service)
		if n := evaluate[int](p, `document.querySelectorAll('.finding.info .predicted').length`); n > 0 {
			t.Errorf("%s: %d facts promise a gain", c.service, n)
		}
		p.close()
	}
}
