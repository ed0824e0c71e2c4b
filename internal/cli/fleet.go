package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
)

// fleetScheme begins the name of an input that a fleet has: fleet://SERVICE@VERSION is its newest reports as one.
const fleetScheme = "fleet://"

// Variables of the environment that say where the fleet is, and with which reader's token.
const (
	envFleet      = "WHYLATE_FLEET"
	envFleetToken = "WHYLATE_FLEET_TOKEN"
	usualFleet    = "http://127.0.0.1:4319"
)

const fleetHelp = `An input may also be fleet://SERVICE@VERSION: the newest reports of that version in a fleet (docs/fleet.md), as one.
WHYLATE_FLEET is the fleet's address (` + usualFleet + ` if empty), WHYLATE_FLEET_TOKEN a reader's token.`

// openFleet asks the fleet for the report that a name means.
func openFleet(ctx context.Context, name string) (io.ReadCloser, error) {
	service, version, ok := strings.Cut(strings.TrimPrefix(name, fleetScheme), "@")
	if !ok || service == "" {
		return nil, fmt.Errorf("%s: name a service and a version: fleet://SERVICE@VERSION", name)
	}
	base := os.Getenv(envFleet)
	if base == "" {
		base = usualFleet
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/v1/report?"+url.Values{"service": {service}, "version": {version}}.Encode(), nil)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w", envFleet, err)
	}
	if token := os.Getenv(envFleetToken); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := wire.Client(wire.Usual()).Do(r)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: asking the fleet: %w", name, err)
	}
	body := &fleetBody{res.Body, cancel}
	if res.StatusCode != http.StatusOK {
		defer body.Close()
		said, _ := wire.First(res.Body, 300)
		return nil, fmt.Errorf("%s: the fleet answered %s: %s", name, res.Status, strings.TrimSpace(string(said)))
	}
	return body, nil
}

// A fleetBody ends its request when it is closed.
type fleetBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *fleetBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
