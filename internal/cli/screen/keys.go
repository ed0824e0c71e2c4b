package screen

import "unicode/utf8"

// A Key is a letter, or one of the constants.
type Key string

// Keys that are no letters.
const (
	Up       Key = "up"
	Down     Key = "down"
	PageUp   Key = "page up"
	PageDown Key = "page down"
	Home     Key = "home"
	End      Key = "end"
	Enter    Key = "enter"
	Tab      Key = "tab"
	Space    Key = "space"
	Esc      Key = "esc"
	CtrlC    Key = "ctrl-c"
)

// sequences are the sequences that terminals send after an escape, as xterm does in both of its modes.
var sequences = map[string]Key{
	"[A": Up, "[B": Down, "OA": Up, "OB": Down, "[5~": PageUp, "[6~": PageDown,
	"[H": Home, "[F": End, "OH": Home, "OF": End, "[1~": Home, "[4~": End, "[7~": Home, "[8~": End, "[Z": Tab,
}

// parseKeys returns the keys in data that arrived together, in order. An escape alone is the key Esc; unknown sequences and characters beyond ASCII
// are ignored completely.
func parseKeys(data []byte) []Key {
	var out []Key
	for len(data) > 0 {
		switch c := data[0]; {
		case c == 0x1b:
			n := sequenceLen(data)
			if n == 1 {
				out = append(out, Esc)
			} else if k, ok := sequences[string(data[1:n])]; ok {
				out = append(out, k)
			}
			data = data[n:]
			continue
		case c == 0x03 || c == 0x04: // Ctrl-D ends most programs, too
			out = append(out, CtrlC)
		case c == '\r' || c == '\n':
			out = append(out, Enter)
		case c == '\t':
			out = append(out, Tab)
		case c == ' ':
			out = append(out, Space)
		case c > ' ' && c < 0x7f:
			out = append(out, Key(c))
		case c >= 0x80:
			_, n := utf8.DecodeRune(data)
			data = data[n:]
			continue
		}
		data = data[1:]
	}
	return out
}

// sequenceLen returns the length in bytes of the control sequence at the beginning of data, which is an escape: ESC [ parameters letter, or ESC O
// letter (ECMA-48, 5.4); 1 if no sequence follows, all of data if its end is missing.
func sequenceLen(data []byte) int {
	if len(data) < 2 || data[1] != '[' && data[1] != 'O' {
		return 1
	}
	for i := 2; i < len(data); i++ {
		if data[1] == 'O' || data[i] >= 0x40 && data[i] <= 0x7e {
			return i + 1
		}
	}
	return len(data)
}
