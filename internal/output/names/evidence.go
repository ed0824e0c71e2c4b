package names

import (
	"math"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Evidence writes a piece of evidence: its text, and its value if it has one.
func Evidence(text string, e report.Evidence) string {
	if value := Value(e); value != "" {
		return text + ": " + value
	}
	return text
}

// Value writes the value of evidence in its unit; "" for a statement, which has none.
func Value(e report.Evidence) string {
	v := e.Value
	if math.IsNaN(v) || math.Abs(v) >= 1e18 {
		return words.Unknown
	}
	switch e.Unit {
	case "":
		if v == 0 {
			return ""
		}
	case "ns":
		return words.Duration(int64(v))
	case "share":
		return words.PercentOr0(v)
	case "bytes":
		return words.Bytes(int64(v))
	}
	text := words.Number(int64(math.Round(v)))
	if a := math.Abs(v); a < 100 && a != math.Trunc(a) {
		text = strconv.FormatFloat(v, 'g', 2, 64)
		if a >= 10 {
			text = strconv.FormatFloat(v, 'f', 0, 64)
		}
	}
	if e.Unit == "" || e.Unit == "count" {
		return text
	}
	if per, ok := strings.CutPrefix(e.Unit, "1/"); ok {
		return text + "/" + termtext.Head(per, 20)
	}
	return text + " " + termtext.Head(e.Unit, 20)
}
