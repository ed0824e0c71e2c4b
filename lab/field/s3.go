package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

var s3Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// requestS3 sends a request to MinIO, signed with Amazon's "Signature Version 4"
// (docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html).
func requestS3(ctx context.Context, s *server, method, path, body string) error {
	host := "127.0.0.1:" + s.ports[0]
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	timestamp := time.Now().UTC()
	day, date := timestamp.Format("20060102"), timestamp.Format("20060102T150405Z")
	sum := func(b string) string { h := sha256.Sum256([]byte(b)); return hex.EncodeToString(h[:]) }
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	scope := day + "/us-east-1/s3/aws4_request"
	canonical := method + "\n" + path + "\n\nhost:" + host + "\nx-amz-content-sha256:" + sum(body) + "\nx-amz-date:" + date + "\n\nhost;x-amz-content-sha256;x-amz-date\n" + sum(body)
	key := mac(mac(mac(mac([]byte("AWS4fieldfield"), day), "us-east-1"), "s3"), "aws4_request")
	signature := hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+date+"\n"+scope+"\n"+sum(canonical)))
	req.Header.Set("X-Amz-Date", date)
	req.Header.Set("X-Amz-Content-Sha256", sum(body))
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=field/"+scope+",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature="+signature)
	resp, err := s3Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, b)
	}
	return err
}

func makeBucket(ctx context.Context, s *server) error { return requestS3(ctx, s, "PUT", "/field", "") }

func putObject(ctx context.Context, s *server) error {
	return requestS3(ctx, s, "PUT", fmt.Sprintf("/field/o%d", rand.IntN(1000)), strings.Repeat("o", 4000))
}
