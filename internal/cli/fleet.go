package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
)

// fleetScheme begins the name of an input from a fleet: fleet://SERVICE@VERSION is the merged newest reports of a version.
const fleetScheme = "fleet://"

// Environment variables with the fleet's URL and a reader's token.
const (
	envFleet      = "WHYLATE_FLEET"
	envFleetToken = "WHYLATE_FLEET_TOKEN"
	usualFleet    = "http://127.0.0.1:4319"
)

// openFleet requests the report fleet://SERVICE@VERSION from the fleet whose address is in the environment. The caller closes it.
func openFleet(ctx context.Context, name string) (io.ReadCloser, error) {
	service, version, ok := strings.Cut(strings.TrimPrefix(name, fleetScheme), "@")
	if !ok || service == "" {
		return nil, fmt.Errorf("%s: name a service and a version: fleet://SERVICE@VERSION", name)
	}
	base := cmp.Or(os.Getenv(envFleet), usualFleet)
	address := strings.TrimSuffix(base, "/") + "/v1/report?" + url.Values{"service": {service}, "version": {version}}.Encode()
	if _, err := url.Parse(address); err != nil {
		return nil, fmt.Errorf("%s: %w", envFleet, err)
	}
	body, err := wire.QueryFleet(ctx, address, os.Getenv(envFleetToken), 2*time.Minute)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return body, nil
}
