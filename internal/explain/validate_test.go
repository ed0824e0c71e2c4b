package explain

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"testing"

	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/validate"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestValidate checks passes over the reference reader's test traces by all rules of package validate.
func TestValidate(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	explained := 0
	for _, tr := range traces {
		data := must.Have(tracetext.Assemble(tr.Text))(t)
		for _, opts := range []Options{{}, {Selection: pass.Selection{Request: regexp.MustCompile(`.`)}, Workers: 3}} {
			checks := new(validate.Checks)
			opts.Checks = checks
			switch _, err := Explain(context.Background(), bytes.NewReader(data), opts); {
			case errors.Is(err, ErrNothing):
				continue
			case err != nil:
				t.Fatalf("%s: %v", tr.Name, err)
			}
			explained++
			if err := checks.Err(); err != nil {
				t.Errorf("%s: %v", tr.Name, err)
			}
		}
	}
	check.True(t, explained >= 20, "only %d reports were made", explained)
}
