// Package otlphttp sends spans to an OTLP/HTTP endpoint. It is separate from package export, so that an engine that replays a
// trace for an export links no HTTP client.
package otlphttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/internal/output/export"
)

// Bounds of sending one message.
const (
	sendTimeout    = time.Minute     // an endpoint's answer
	sendAttempts   = 6               // of which all but the first are retries
	maxRetryWait   = 5 * time.Minute // before a retry: there is none if the endpoint asks for a longer wait
	firstRetryWait = time.Second     // doubled with each retry, if the endpoint names no time
)

// A Client sends spans to an OTLP/HTTP endpoint. It does not follow redirects, because headers may contain credentials for
// this host only. Errors never contain the URL's user, password or query, nor the headers' values.
type Client struct {
	// Wait is used before retries; nil means to wait for that time or until
	// the context ends.
	Wait func(context.Context, time.Duration) error
	// Spans counts the sent spans, and Rejected those that the endpoint rejected.
	Spans, Rejected int64
	Message         string // the endpoint's last reason
	Retries         int
	// Refused counts the messages that the endpoint refused for a reason that concerns only the message; Refusal is the first reason.
	Refused int
	Refusal error

	endpoint, shownURL string
	header             http.Header
	client             *http.Client
}

// NewClient returns a client for an endpoint, which sends these headers; encoding is that of its messages. With conf, which may be nil, the endpoint
// must be https. It opens no connection.
func NewClient(endpoint, encoding string, header http.Header, conf *tls.Config) (*Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("sending spans: the endpoint is not a URL such as http://localhost:4318/v1/traces")
	}
	if conf != nil && u.Scheme != "https" {
		return nil, errors.New("sending spans: TLS options are given, but the URL is http://: write https://")
	}
	content := "application/json"
	if encoding == export.EncodingProtobuf {
		content = "application/x-protobuf"
	}
	c := &Client{endpoint: endpoint, shownURL: u.Scheme + "://" + u.Host + u.Path, header: http.Header{"Content-Type": {content}}}
	maps.Copy(c.header, header)
	transport := wire.DefaultTransport()
	if conf != nil {
		transport.TLSClientConfig = conf
	}
	c.client = wire.Client(transport)
	c.client.Timeout = sendTimeout
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// Send sends one message. It retries, a limited number of times, if the endpoint is busy (status 429, 502, 503, 504: OTLP
// specification, "Failures"), never before the time that the endpoint names, or if the connection to an endpoint that has
// accepted spans fails. It counts rejected spans and refused messages, and returns no error for them: the endpoint may accept
// the next message. An error means that the endpoint accepts no messages.
func (c *Client) Send(ctx context.Context, body []byte, spans int) error {
	for try := 1; ; try++ {
		wait, err := c.post(ctx, body)
		var refused *refusal
		switch {
		case err == nil:
			c.Spans += int64(spans)
			return nil
		case errors.As(err, &refused):
			if c.Refused++; c.Refusal == nil {
				c.Refusal = err
			}
			return nil
		case wait > maxRetryWait:
			return fmt.Errorf("sending spans to %s: %w: it asks to wait for %v", c.shownURL, err, wait.Round(time.Second))
		case wait < 0 || try == sendAttempts:
			return fmt.Errorf("sending spans to %s: %w", c.shownURL, err)
		case wait == 0:
			wait = firstRetryWait << (try - 1)
		}
		c.Retries++
		sleep := c.Wait
		if sleep == nil {
			sleep = waitOrCancel
		}
		if err := sleep(ctx, wait); err != nil {
			return fmt.Errorf("sending spans to %s: %w", c.shownURL, err)
		}
	}
}

// waitOrCancel waits for d and returns nil, or the cause of ctx's end as soon as it ends.
func waitOrCancel(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// post sends a message once. After an error, it returns the time to wait before a retry: 0 if the endpoint names none, negative if a retry is
// useless. An error of type *refusal is about this message only.
func (c *Client) post(ctx context.Context, body []byte) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(body))
	if err != nil {
		return -1, errors.New("not a valid URL")
	}
	req.Header = c.header.Clone()
	resp, err := c.client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // the URL in it may hold credentials
		}
		if c.Spans > 0 && ctx.Err() == nil {
			return 0, err
		}
		return -1, err
	}
	defer resp.Body.Close()
	answer, err := wire.ReadFirst(resp.Body, 64<<10)
	switch {
	case resp.StatusCode/100 == 2 && err != nil:
		return -1, fmt.Errorf("reading the answer: %w", err)
	case resp.StatusCode/100 == 2:
		c.recordPartialSuccess(resp.Header.Get("Content-Type"), answer)
		return 0, nil
	}
	err = fmt.Errorf("the endpoint answers %s: %s", resp.Status, c.errorText(resp.Header.Get("Content-Type"), answer))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return retryAfter(resp.Header.Get("Retry-After"), time.Now()), err
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusGone, http.StatusUnsupportedMediaType:
		return -1, err // all other messages would fail as well
	}
	if resp.StatusCode < 400 {
		return -1, err
	}
	return -1, &refusal{err}
}

// A refusal concerns one message: the endpoint may accept others.
type refusal struct{ error }

// retryAfter parses the header Retry-After (RFC 9110, 10.2.3): seconds or a date. It returns 0 if it is neither.
func retryAfter(value string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return max(time.Duration(n)*time.Second, time.Nanosecond)
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), time.Nanosecond)
	}
	return 0
}

// recordPartialSuccess reads the body of a success (ExportTraceServiceResponse): it adds the rejected spans to Rejected, and
// stores the message in Message.
func (c *Client) recordPartialSuccess(contentType string, answer []byte) {
	if strings.HasPrefix(contentType, "application/x-protobuf") {
		if m, ok := lengthField(answer, 1); ok { // partial_success
			if n, ok := varintField(m, 1); ok { // rejected_spans
				c.Rejected += int64(n)
			}
			if text, ok := lengthField(m, 2); ok && len(text) > 0 { // error_message
				c.Message = string(text)
			}
		}
		return
	}
	var p struct {
		PartialSuccess struct {
			RejectedSpans json.RawMessage `json:"rejectedSpans"`
			ErrorMessage  string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &p) != nil {
		return
	}
	if p.PartialSuccess.ErrorMessage != "" {
		c.Message = p.PartialSuccess.ErrorMessage
	}
	// 64-bit integers are strings in JSON, or numbers.
	if n, err := strconv.ParseInt(strings.Trim(string(p.PartialSuccess.RejectedSpans), `"`), 10, 64); err == nil && n > 0 {
		c.Rejected += n
	}
}

// errorText returns the text of an answer that is no success: the message of a google.rpc.Status, at most 200 characters.
func (c *Client) errorText(contentType string, answer []byte) string {
	if strings.HasPrefix(contentType, "application/x-protobuf") {
		text, _ := lengthField(answer, 2) // message
		answer = text
	}
	return fmt.Sprintf("%.200s", answer)
}

// lengthField returns the first length-delimited field with that number. ok is false if there is none. The value aliases b.
func lengthField(b []byte, number uint64) (value []byte, ok bool) {
	eachField(b, func(n, _ uint64, v []byte) {
		if n == number && v != nil && !ok {
			value, ok = v, true
		}
	})
	return value, ok
}

// varintField returns the last varint of a message with this field number; ok is false if there is none.
func varintField(b []byte, number uint64) (value uint64, ok bool) {
	eachField(b, func(n, v uint64, raw []byte) {
		if n == number && raw == nil {
			value, ok = v, true
		}
	})
	return value, ok
}

// eachField calls f for the fields of a protocol buffer from another program, as far as it is valid: in their order, with the value of a field, or
// with the bytes of a length-delimited one.
func eachField(b []byte, f func(number, value uint64, raw []byte)) {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return
		}
		b = b[n:]
		var v uint64
		switch key & 7 {
		case 0, 2:
			if v, n = binary.Uvarint(b); n <= 0 {
				return
			}
			b = b[n:]
			if key&7 == 2 {
				if v > uint64(len(b)) {
					return
				}
				f(key>>3, 0, b[:v:v])
				b = b[v:]
				continue
			}
		case 1:
			if len(b) < 8 {
				return
			}
			v, b = binary.LittleEndian.Uint64(b), b[8:]
		case 5:
			if len(b) < 4 {
				return
			}
			v, b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
		default:
			return
		}
		f(key>>3, v, nil)
	}
}
