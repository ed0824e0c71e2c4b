package markname

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "GET /a b": "GET /a b", "a\nb\x00c\x7fd\u0085e": "a_b_c_d_e", "é": "é", "a\xffb": "a_b", // \u0085 is a control, too
		strings.Repeat("x", Max): strings.Repeat("x", Max), strings.Repeat("x", Max+1): strings.Repeat("x", Max), strings.Repeat("x", Max-1) + "é": strings.Repeat("x", Max-1) + "_",
	} {
		check.Equal(t, Clean(in), want, "%q becomes", in)
	}
}
