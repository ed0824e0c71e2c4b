// Package jsontext escapes JSON for terminals.
package jsontext

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Escape returns valid JSON with the invisible characters of its strings written as \u escapes: DEL, C1 controls such as
// U+009B, which begins terminal commands as ESC [ does, characters that change the direction of writing, and private code
// points. The values stay equal. Valid JSON has escapes for the control characters of ASCII already. Escape returns data
// itself if there is nothing to escape.
func Escape(data []byte) []byte {
	if !bytes.ContainsFunc(data, isInvisible) {
		return data
	}
	out := make([]byte, 0, len(data)+len(data)/8)
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case !isInvisible(r):
			out = append(out, data[:n]...)
		case r <= 0xffff:
			out = fmt.Appendf(out, `\u%04x`, r)
		default: // a surrogate pair: RFC 8259, section 7
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
		data = data[n:]
	}
	return out
}

func isInvisible(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
