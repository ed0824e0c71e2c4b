package jsontext_test

import (
	"encoding/json"
	"testing"
	"unicode"

	"github.com/whylate/whylate/internal/output/jsontext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestEscape checks that nothing a terminal obeys is left, and that the text stays the same.
func TestEscape(t *testing.T) {
	for _, text := range []string{"plain", "ümläut 漢字", "a\u009b31mred", "\x7f\u0085\u200e\u202e", "\U000e0001\U0010fffd", "\x1b[2J\x00\n", "\xff\xfe"} {
		data := must.Have(json.Marshal(map[string]string{text: text}))(t)
		var want, got map[string]string
		out := jsontext.Escape(data)
		must.Do(t, json.Unmarshal(data, &want))
		must.Do(t, json.Unmarshal(out, &got), out)
		for k, v := range want {
			check.True(t, got[k] == v, "%q became %q", v, got[k])
		}
		for _, r := range string(out) {
			check.True(t, unicode.IsPrint(r), "%q holds %U", out, r)
		}
	}
}
