package wire

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/output/termtext"
)

// QueryFleet sends a GET request to a fleet server, with a reader's token if that is not empty, and returns the body of the answer, which the caller
// closes. The timeout includes reading the body. Another status than 200 is a *FleetError. Errors quote the fleet's answer, never the token.
func QueryFleet(ctx context.Context, address, token string, timeout time.Duration) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := Client(DefaultTransport()).Do(r)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("asking the fleet: %w", err)
	}
	body := &fleetBody{res.Body, cancel}
	if res.StatusCode != http.StatusOK {
		defer body.Close()
		answer, _ := ReadFirst(res.Body, 300)
		return nil, &FleetError{res.StatusCode, fmt.Sprintf("the fleet answered %s: %s", res.Status, termtext.Head(strings.TrimSpace(string(answer)), 700))}
	}
	return body, nil
}

// A FleetError is an answer of a fleet server with another status than 200. Its text quotes the
// answer.
type FleetError struct {
	Code int
	text string
}

func (e *FleetError) Error() string { return e.text }

// A fleetBody ends its request when it is closed.
type fleetBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *fleetBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
