package kernelevents

import (
	"bytes"
	"errors"
	"io"
)

// Rewrite returns a copy of a file with the events for which keep returns true and with tables as change leaves them.
// What cannot be read is left out.
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
