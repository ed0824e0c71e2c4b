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

// mask stands where a secret was. It is not a word that a service is likely to use itself.
const mask = "xxxxx"

// Redact writes a URL without what may be secret: user and password, the values of its query except pprof's own
// parameters, and the fragment.
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
		// mailto:x and its like: nothing in it is known to be harmless.
		r.Opaque = mask
	}
	if r.RawQuery != "" {
		r.RawQuery = redactQuery(r.RawQuery)
	}
	return r.String()
}

// redactQuery keeps the names of parameters, and the values of pprof's own.
func redactQuery(query string) string {
	parameters := strings.Split(query, "&")
	for i, parameter := range parameters {
		name, value, found := strings.Cut(parameter, "=")
		switch {
		case !found:
			// A bare word may be a token: ?s3cret.
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

// isNumber tells that a value is a number, as pprof's own parameters are.
func isNumber(value string) bool {
	return len(value) < 12 && strings.Trim(value, "0123456789.") == ""
}

// RedactString does the same as [Redact] for text that was meant as a URL but need not be one. It rather drops too
// much: everything up to the last @, and all of a query or fragment.
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

// cleanLine makes text from outside fit for a line of a terminal: at most limit columns, spaces folded, nothing invisible.
func cleanLine(s string, limit int) string {
	return termtext.Head(strings.Join(strings.Fields(s), " "), limit)
}

// secrets are strings that must not come back from outside: a server may well quote a token in its answer, a proxy a
// password in its error page, a redirect a key in its address.
type secrets []string

// newSecrets collects every form in which the credentials may be echoed.
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
			// "Bearer abc", "session=abc; theme=x": the parts may be quoted without the rest.
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
	// Longest first, so that a part does not spoil the whole.
	return slices.SortedFunc(maps.Keys(forms), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
}

// shortSecret is the length below which replacing a secret in a text would tell where in it the secret was.
const shortSecret = 4

// quotable prepares text that came from a server for a message: secrets masked, fit for one line. If a secret too short
// to be masked occurs in it, nothing is quoted at all.
func (s secrets) quotable(text string, limit int) string {
	text = s.scrub(text)
	if slices.ContainsFunc(s, func(secret string) bool { return len(secret) < shortSecret && strings.Contains(text, secret) }) {
		return ""
	}
	return cleanLine(text, limit)
}

// scrub masks secrets in a message of a library.
func (s secrets) scrub(text string) string {
	for _, secret := range s {
		if len(secret) >= shortSecret {
			text = strings.ReplaceAll(text, secret, mask)
		}
	}
	return text
}

// withoutURLs takes the URLs out of an error: *url.Error quotes user names and queries in full.
func withoutURLs(err error) error {
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			return err
		}
		err = ue.Err
	}
}
