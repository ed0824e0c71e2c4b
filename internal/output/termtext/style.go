package termtext

// A Style is the appearance of text on a terminal: the parameters of its escape sequence "select graphic rendition" (ECMA-48,
// 8.3.117). The colours are only those that every terminal has, in the shades that its user configured.
type Style string

// Styles.
const (
	Plain   Style = ""
	Bold    Style = "1"
	Dim     Style = "2"
	Reverse Style = "7"
	Red     Style = "31"
	Green   Style = "32"
	Yellow  Style = "33"
	Blue    Style = "34"
	Magenta Style = "35"
	Cyan    Style = "36"
	BoldRed Style = "1;31"
)

// Reset ends a style.
const Reset = "\x1b[0m"

// Paint returns text in the style, for a terminal that supports it.
func (s Style) Paint(text string) string {
	if s == Plain {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + Reset
}
