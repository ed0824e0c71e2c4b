package acceptance_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// maxPrediction matches the prediction for the slowest request: "max 118ms →".
var maxPrediction = regexp.MustCompile(`max \d+ms →`)

// TestSnapshot explains the buffer of a flight recorder that was saved when a request took over 100 ms: three such requests
// among hundreds of some microseconds, because a report slept while it held a lock that they need. There are too few for a
// percentile. The truth is the server's own count and clock. The verdict must be about the slow requests, the finding must
// predict their maximum, and for the time before them there must be no finding above info.
func TestSnapshot(t *testing.T) {
	data, recorded := testprog.Record(t, "snapshot")
	facts := recorded.Facts
	const slowFunc = "main.(*accountBook).report"
	for _, c := range []struct {
		name string
		opts whylate.Options
	}{{"marked", whylate.Options{}}, {"bare", whylate.Options{NoMarks: true}}} {
		t.Run(c.name, func(t *testing.T) {
			rep := explainBytes(t, data, c.opts)
			v := rep.Verdict[0]
			g := rep.Group(v.Group)
			if int64(v.Requests) != facts["slow"] || len(v.Causes) == 0 || v.Causes[0].Cause != report.CauseSleep || v.Causes[0].Share < 0.95 || v.Causes[0].Sites[0].Site.Func != slowFunc {
				t.Errorf("there are %d slow requests; the verdict is %s", facts["slow"], v.Text)
			}
			must.True(t, len(rep.Findings) != 0, "there is no finding")
			f := &rep.Findings[0]
			check.True(t, f.Code == report.RuleLockConvoy && f.Severity == report.SeverityHigh && f.Site != nil && f.Site.Func == slowFunc && f.Group == g.ID,
				"the first finding is %+v at %+v", f, f.Site)
			p := f.Predicted
			must.True(t, p != nil && p.MaxNS != nil && p.WasMaxNS != nil, "no prediction for the slowest request: %+v", p)
			isNear := func(got, want int64) bool { return got > want*95/100 && got < want*105/100+int64(2*time.Millisecond) }
			if !isNear(*p.WasMaxNS, facts["slowest"]) || !isNear(p.MaxNS.Est, max(0, facts["slowest"]-facts["slept"])) || f.Changes == nil {
				t.Errorf("the slowest request took %d ns, of which the report slept %d; the prediction is %+v, the old maximum %d", facts["slowest"], facts["slept"], p.MaxNS, *p.WasMaxNS)
			}
			for i, o := range rep.Findings[1:] {
				check.True(t, o.Severity == report.SeverityInfo, "there is another finding: %+v", rep.Findings[i+1])
			}
			var out bytes.Buffer
			must.Do(t, text.Write(&out, rep, text.Options{Width: 100, Full: true}))
			if output := strings.Join(strings.Fields(out.String()), " "); !maxPrediction.MatchString(output) {
				t.Errorf("the text has no prediction for the slowest request: %s", output)
			}
		})
	}
	t.Run("quiet", func(t *testing.T) {
		rep := explainBytes(t, data, whylate.Options{To: 450 * time.Millisecond})
		check.True(t, rep.Groups[0].Count >= 100, "there are only %d requests", rep.Groups[0].Count)
		for i := range rep.Findings {
			if f := &rep.Findings[i]; f.Severity != report.SeverityInfo {
				t.Errorf("a finding about the time before: %s", describeFinding(f))
			}
		}
	})
}
