package testprog

import (
	"encoding/json"
	"fmt"
)

// WithService returns a truth.json in which the service is replaced by a catalog's entry. The lines of
// sites stay, because they are those of the program that ran.
func WithService(truth, service []byte) ([]byte, error) {
	var whole, updated map[string]any
	if err := json.Unmarshal(truth, &whole); err != nil {
		return nil, fmt.Errorf("reading what is true of the run: %w", err)
	}
	if err := json.Unmarshal(service, &updated); err != nil {
		return nil, fmt.Errorf("reading the catalog's entry: %w", err)
	}
	copyLines(whole["service"], updated)
	whole["service"] = updated
	return json.Marshal(whole)
}

// copyLines sets the lines of sites in updated to those of the same sites in original.
func copyLines(original, updated any) {
	switch updated := updated.(type) {
	case map[string]any:
		original, _ := original.(map[string]any)
		if line, ok := original["line"]; ok && updated["func"] == original["func"] {
			updated["line"] = line
		}
		for k, v := range updated {
			copyLines(original[k], v)
		}
	case []any:
		original, _ := original.([]any)
		for i := range updated {
			if i < len(original) {
				copyLines(original[i], updated[i])
			}
		}
	}
}
