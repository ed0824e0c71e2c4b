package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/whylate/whylate/report"
)

// sendTimeout bounds what an endpoint may take.
const sendTimeout = time.Minute

// SendOTLP sends what OTLP writes to an OTLP/HTTP endpoint, in one request
// with the headers ("NAME: VALUE"). Redirects are not followed: headers may
// hold credentials for this host only. Errors never hold the URL's user,
// password or query, nor the headers' values.
func SendOTLP(ctx context.Context, endpoint string, headers []string, r *report.Report) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return errors.New("sending spans: the endpoint is no URL such as http://localhost:4318/v1/traces")
	}
	shown := u.Scheme + "://" + u.Host + u.Path
	var body bytes.Buffer
	if err := OTLP(&body, r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, &body)
	if err != nil {
		return fmt.Errorf("sending spans to %s: not a valid URL", shown)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		req.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the URL in it may hold credentials
		}
		return fmt.Errorf("sending spans to %s: %w", shown, err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("sending spans to %s: the endpoint answers %s: %.200s", shown, resp.Status, answer)
	}
	// OTLP/HTTP: a success may be partial, and says so in its body.
	var partial struct {
		PartialSuccess struct {
			RejectedSpans any    `json:"rejectedSpans"`
			ErrorMessage  string `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &partial) == nil && partial.PartialSuccess.RejectedSpans != nil {
		if n := fmt.Sprint(partial.PartialSuccess.RejectedSpans); n != "0" && n != "" {
			return fmt.Errorf("sending spans to %s: the endpoint rejected %s of them: %.200s", shown, n, partial.PartialSuccess.ErrorMessage)
		}
	}
	return nil
}
