package kernelevents

import (
	"bytes"
	"errors"
	"io"
)

// Rewrite returns a copy of a kernel.bin with the events for which keep returns true, and its tables after change modified them. Both may modify
// their argument. From the first damaged block on, events are left out without an error.
func Rewrite(data []byte, keep func(*Event) bool, change func(*Tables)) ([]byte, error) {
	r, err := NewReader(data)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := NewWriter(&out)
	if err != nil {
		return nil, err
	}
	for events := []Event(nil); ; {
		if events, err = r.Next(events); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, ErrFormat) {
			return nil, err
		}
		for i := range events {
			if !keep(&events[i]) {
				continue
			}
			if err := w.Add(events[i]); err != nil {
				return nil, err
			}
		}
		if err != nil {
			break
		}
	}
	change(&r.Tables)
	err = w.Close(r.Tables)
	return out.Bytes(), err
}
