package tune

import "fmt"

// sourceText names a file, what it says and how far above the process's own
// group it is.
func sourceText(file, text string, depth int) string {
	s := file
	if text != "" {
		s += fmt.Sprintf(" (%q)", text)
	}
	switch {
	case depth == 1:
		s += ", of the parent group"
	case depth > 1:
		s += fmt.Sprintf(", of the group %d levels up", depth)
	}
	return s
}
