package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/outgoing"
	"github.com/whylate/whylate/internal/capture/record"
)

// A Secret is a key that the receiver shares with the fleet.
type Secret []byte

// ReadSecrets reads a file with one key in each line: 24 to 64 bytes in base64, with the prefix whsec_ with which receivers issue them, or without. A
// file without keys is an error.
func ReadSecrets(file string) (out []Secret, err error) {
	text, err := record.ReadSecretFile(file, nil)
	if err != nil {
		return nil, err
	}
	for line := range strings.FieldsSeq(text) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(line, "whsec_"))
		if err != nil || len(key) < 24 || len(key) > 64 {
			return nil, fmt.Errorf("%s: a key is no 24 to 64 bytes in base64", file)
		}
		out = append(out, key)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no key", file)
	}
	return out, nil
}

// sign returns the signature of a message: of its id, the timestamp of this delivery (seconds since 1970) and its body. Source:
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
func (s Secret) sign(id, timestamp string, body []byte) string {
	h := hmac.New(sha256.New, s)
	fmt.Fprintf(h, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

const (
	responseTimeout = 15 * time.Second // for the whole answer of the receiver
	retryHold       = time.Minute      // for which a claimed message is hidden from other processes
	maxTries        = 14               // over three days
	maxWait         = 8 * time.Hour
)

// A sender delivers the messages of the outbox.
type sender struct {
	*Notifier
	client *http.Client
}

func (n *Notifier) newSender() *sender { return &sender{n, n.AllowedRanges.Client(responseTimeout)} }

// deliverNext delivers one message that is due. It reports whether there was one. The message stays in the outbox until the
// receiver confirms it or all tries have failed.
func (s *sender) deliverNext(ctx context.Context, now time.Time) (found bool, err error) {
	message, err := s.Store.ClaimMessage(ctx, now, now.Add(retryHold))
	if message == nil || err != nil {
		return false, err
	}
	err = s.post(ctx, message.ID, message.Body, now)
	if ctx.Err() != nil {
		return true, nil // the message is due again after retryHold
	}
	outcome := "delivered"
	switch {
	case errors.Is(err, outgoing.ErrRefused):
		outcome = "refused"
	case err != nil:
		outcome = "failed"
	}
	if err != nil && message.Tries >= maxTries {
		s.Metrics.WebhookAttempts.WithLabelValues("given-up").Inc()
		s.Log.Error("a webhook was given up", "id", message.ID, "event", string(message.Body), "error", err)
		return true, s.Store.RemoveMessage(ctx, message)
	}
	s.Metrics.WebhookAttempts.WithLabelValues(outcome).Inc()
	if err == nil {
		return true, s.Store.RemoveMessage(ctx, message)
	}
	wait := min(5*time.Second<<(2*(message.Tries-1)), maxWait) // fewer than maxTries shifts do not overflow
	wait += rand.N(wait / 4)                                   // spread the retries after an outage of the receiver
	s.Log.Warn("a webhook was not delivered", "id", message.ID, "try", message.Tries, "again", wait.Round(time.Second), "error", err)
	return true, s.Store.RetryMessage(ctx, message, now.Add(wait))
}

// post sends a signed message to the receiver. Every status other than 2xx is an error.
func (s *sender) post(ctx context.Context, id string, body []byte, now time.Time) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.ReceiverURL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	timestamp := strconv.FormatInt(now.Unix(), 10)
	var signatures []string
	for _, k := range s.Secrets {
		signatures = append(signatures, k.sign(id, timestamp, body))
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "User-Agent": "whylate-fleet", "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": strings.Join(signatures, " ")} {
		r.Header.Set(name, value)
	}
	res, err := s.client.Do(r)
	if err != nil {
		return err
	}
	_ = res.Body.Close() // only the status counts
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the receiver answered %s", res.Status)
	}
	return nil
}
