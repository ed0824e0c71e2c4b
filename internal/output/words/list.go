package words

import "strings"

// List joins names with commas and a space: "a, b, c".
func List[S ~string](names []S) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = string(n)
	}
	return strings.Join(parts, ", ")
}
