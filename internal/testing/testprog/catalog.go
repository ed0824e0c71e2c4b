package testprog

import (
	"encoding/json"
	"fmt"
)

// WithService returns a truth.json with what a catalog says of the service in place of what stands there. The lines of
// sites stay: they are those of the program that ran.
func WithService(truth, service []byte) ([]byte, error) {
	var whole, now map[string]any
	if err := json.Unmarshal(truth, &whole); err != nil {
		return nil, fmt.Errorf("reading what is true of the run: %w", err)
	}
	if err := json.Unmarshal(service, &now); err != nil {
		return nil, fmt.Errorf("reading the catalog's entry: %w", err)
	}
	keepLines(whole["service"], now)
	whole["service"] = now
	return json.Marshal(whole)
}

// keepLines gives sites of now the lines that the same sites of old have.
func keepLines(old, now any) {
	switch now := now.(type) {
	case map[string]any:
		old, _ := old.(map[string]any)
		if line, ok := old["line"]; ok && now["func"] == old["func"] {
			now["line"] = line
		}
		for k, v := range now {
			keepLines(old[k], v)
		}
	case []any:
		old, _ := old.([]any)
		for i := range now {
			if i < len(old) {
				keepLines(old[i], now[i])
			}
		}
	}
}
