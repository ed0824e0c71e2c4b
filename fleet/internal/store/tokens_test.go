package store

import (
	"reflect"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestStoredTokens: a token is valid for its scope until it expires or is revoked.
func TestStoredTokens(t *testing.T) {
	s, ctx, now := openTestStore(t), t.Context(), time.Now()
	must.Do(t, s.AddToken(ctx, "a", SendScope, "shop", now.Add(time.Hour)))
	must.Do(t, s.AddToken(ctx, "b", ReadScope, "shop", now.Add(time.Hour)))
	for _, c := range []struct {
		token, scope, want string
		after              time.Duration
	}{{"a", SendScope, "shop", 0}, {"a", ReadScope, "", 0}, {"b", ReadScope, "shop", time.Hour - 1}, {"b", ReadScope, "", time.Hour}, {"c", ReadScope, "", 0}} {
		name, err := s.TokenName(ctx, c.token, c.scope, now.Add(c.after))
		check.True(t, err == nil && name == c.want, "%+v: %q, %v", c, name, err)
	}
	list := must.Have(s.Tokens(ctx))(t)
	check.True(t, len(list) == 2 && list[0].Scope == ReadScope && list[0].Expires.Equal(time.Unix(0, now.Add(time.Hour).UnixNano())) && time.Since(list[0].Created) < time.Minute, "%+v", list)
	check.Equal(t, must.Have(s.RevokeTokens(ctx, ReadScope, "shop"))(t), 1, "tokens ended")
	must.Do(t, s.DeleteOldRows(ctx, now.Add(2*time.Hour), now))
	check.Equal(t, len(must.Have(s.Tokens(ctx))(t)), 0, "tokens are left")
	check.True(t, s.Ping(ctx) == nil, "the store does not answer")
	must.Do(t, s.Close())
	check.Error(t, s.Ping(ctx), "a closed store answers")
}

// TestTokens: tokens in a bucket are found by one listing, expire, and can be revoked.
func TestTokens(t *testing.T) {
	address, b := enginetest.S3(t)
	b.Objects["/fleet/test/tokens/a.send.x.1.c2hvcA"], b.Objects["/fleet/test/tokens/b.send.1.1"] = nil, nil // others' files
	files := must.Have(raw.OpenS3(t.Context(), address, raw.Dir(t.TempDir())))(t)
	s := &sharedLedger{tokenFiles: &tokenFiles{files: files.WithPrefix("tokens")}}
	ctx, now := t.Context(), time.Now()
	for token, name := range map[string]string{"a": "shop", "b": "a.b/c", "old": "shop"} {
		expires := now.Add(time.Hour)
		if token == "old" {
			expires = now.Add(-time.Hour)
		}
		must.Do(t, s.AddToken(ctx, token, SendScope, name, expires))
	}
	checkName := func(token, scope, want string) {
		t.Helper()
		s.tokenFiles.listedAt = time.Time{}
		if name, err := s.TokenName(ctx, token, scope, now); name != want || err != nil {
			t.Errorf("%s for %s: %q %v, want %q", token, scope, name, err, want)
		}
	}
	checkName("a", SendScope, "shop")
	checkName("b", SendScope, "a.b/c")
	checkName("a", ReadScope, "")
	checkName("old", SendScope, "")
	checkName("", SendScope, "")
	if n, err := s.RevokeTokens(ctx, SendScope, "a.b/c"); n != 1 || err != nil {
		t.Error(n, err)
	}
	checkName("b", SendScope, "")
	if err := s.tokenFiles.expire(ctx, now); err != nil {
		t.Error(err)
	}
	list, err := s.Tokens(ctx)
	if err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], Token{SendScope, "shop", time.Unix(list[0].Created.Unix(), 0), time.Unix(now.Add(time.Hour).Unix(), 0)}) {
		t.Errorf("%+v %v", list, err)
	}
	// Each upload needs a token: a listing is used again for maxListAge, so another server's new token is not found at once.
	second := &sharedLedger{tokenFiles: &tokenFiles{files: s.tokenFiles.files}}
	must.Do(t, second.AddToken(ctx, "new", SendScope, "shop", now.Add(time.Hour)))
	if name, err := s.TokenName(ctx, "new", SendScope, now); name != "" || err != nil {
		t.Errorf("the bucket was listed again: %q %v", name, err)
	}
	checkName("new", SendScope, "shop")
	must.Do(t, s.AddToken(ctx, "c", ReadScope, "ann", now.Add(time.Hour)))
	list = must.Have(s.Tokens(ctx))(t)
	check.True(t, len(list) == 3 && list[0].Name == "ann" && list[2].Scope == SendScope, "%+v", list)
}
