package record

import (
	"cmp"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
)

// mask replaces a secret. A service is unlikely to use this word.
const mask = "xxxxx"

// Redact returns a URL without its possible secrets: user and password, the values of the query except pprof's own parameters, and the fragment. It
// is "" for nil.
func Redact(u *url.URL) string {
	if u == nil {
		return ""
	}
	r := *u
	r.Fragment, r.RawFragment = "", ""
	if r.User != nil {
		r.User = url.User(mask)
	}
	if r.Opaque != "" {
		// mailto:x and similar URLs: any part may be a secret.
		r.Opaque = mask
	}
	if r.RawQuery != "" {
		r.RawQuery = redactQuery(r.RawQuery)
	}
	return r.String()
}

// redactQuery replaces the values of a raw query by a mask, except those of pprof's own parameters, and also a parameter without a value, which may
// be a token.
func redactQuery(query string) string {
	parameters := strings.Split(query, "&")
	for i, parameter := range parameters {
		name, value, found := strings.Cut(parameter, "=")
		switch {
		case !found:
			// A parameter without a value may be a token: ?s3cret.
			if name != "" {
				parameters[i] = mask
			}
		case (name == "seconds" || name == "debug" || name == "gc") && isNumber(value):
		default:
			parameters[i] = name + "=" + mask
		}
	}
	return strings.Join(parameters, "&")
}

// isNumber reports whether a value is a number, as those of pprof's own parameters are.
func isNumber(value string) bool {
	return len(value) < 12 && strings.Trim(value, "0123456789.") == ""
}

// RedactString is [Redact] for text that may not be a valid URL. It rather removes too much:
// everything up to the last @, and the whole query or fragment.
func RedactString(s string) string {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		scheme, rest = "", s
	} else {
		scheme += "://"
	}
	if strings.ContainsAny(scheme[:max(len(scheme)-3, 0)], "@:/?#") {
		scheme = "" // user:pa://ss@host
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = mask + "@" + rest[i+1:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i] + rest[i:i+1] + mask
	}
	return cleanLine(scheme+rest, 200)
}

// cleanLine prepares text from outside for a line of a terminal: at most limit columns, single spaces,
// no invisible characters.
func cleanLine(s string, limit int) string {
	return termtext.Head(strings.Join(strings.Fields(s), " "), limit)
}

// secrets are strings that messages must not quote: a server may repeat a token in its answer, a proxy
// a password in its error page, a redirect a key in its URL.
type secrets []string

// newSecrets returns every form (quoted, escaped, in base64, in part) in which an answer may repeat the credentials, longest first.
func newSecrets(header http.Header, login *Login, query url.Values, proxy *url.URL) secrets {
	forms := map[string]bool{}
	addForms := func(s string) {
		if s == "" {
			return
		}
		quoted := strconv.Quote(s)
		for _, form := range []string{s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s)),
			(&url.URL{Path: s}).EscapedPath(), quoted[1 : len(quoted)-1]} {
			forms[form] = true
		}
	}
	for _, values := range header {
		for _, v := range values {
			addForms(v)
			// "Bearer abc", "session=abc; theme=x": an answer may repeat one part only.
			for _, part := range strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(" ;,=", r) }) {
				if len(part) >= shortSecret && !strings.EqualFold(part, "bearer") && !strings.EqualFold(part, "basic") {
					addForms(part)
				}
			}
		}
	}
	for _, values := range query {
		for _, v := range values {
			addForms(v)
		}
	}
	addLogin := func(user, password string) {
		addForms(user)
		addForms(password)
		if user != "" || password != "" {
			addForms(user + ":" + password)
		}
	}
	if login != nil {
		addLogin(login.User, login.Password)
	}
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		addLogin(proxy.User.Username(), password)
	}
	// Longest first, because replacing a part would hide the longer secret from the search.
	return slices.SortedFunc(maps.Keys(forms), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
}

// shortSecret is the length below which a masked text would show where the secret occurs in ordinary
// words.
const shortSecret = 4

// quotable prepares a server's text for a message: secrets masked, one line of at most limit characters. It returns "" if the text contains a secret
// that is too short to be masked.
func (s secrets) quotable(text string, limit int) string {
	text = s.scrub(text)
	if slices.ContainsFunc(s, func(secret string) bool { return len(secret) < shortSecret && strings.Contains(text, secret) }) {
		return ""
	}
	return cleanLine(text, limit)
}

// scrub masks secrets in a library's message, except those shorter than shortSecret.
func (s secrets) scrub(text string) string {
	for _, secret := range s {
		if len(secret) >= shortSecret {
			text = strings.ReplaceAll(text, secret, mask)
		}
	}
	return text
}

// withoutURLs unwraps every *url.Error, because its text has user names and queries in full.
func withoutURLs(err error) error {
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			return err
		}
		err = ue.Err
	}
}
