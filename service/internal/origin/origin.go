// Package origin detects requests that a browser sends for pages of other sites.
package origin

import (
	"net/http"
	"net/url"
)

// IsCrossSite reports whether a browser sent the request for a page of another
// origin. Programs send neither header.
func IsCrossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
	default:
		return true
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != r.Host
}
