// Package jsontext escapes JSON for terminals.
package jsontext

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Escape returns valid JSON with the invisible characters of its strings written as \u escapes: DEL, C1 controls such as
// U+009B, which begins terminal commands as ESC [ does, characters that change the direction of writing, and private code
// points. The values stay equal. Valid JSON has escapes for the control characters of ASCII already. Escape returns data
// itself if there is nothing to escape.
func Escape(data []byte) []byte {
	var out []byte
	done := 0
	for i := 0; i < len(data); {
		if data[i] < utf8.RuneSelf-1 {
			i++
			continue
		}
		r, n := utf8.DecodeRune(data[i:])
		if isInvisible(r) {
			if out = append(out, data[done:i]...); r <= 0xffff {
				out = fmt.Appendf(out, `\u%04x`, r)
			} else { // a surrogate pair: RFC 8259, section 7
				r -= 0x10000
				out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			}
			done = i + n
		}
		i += n
	}
	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
}

func isInvisible(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
