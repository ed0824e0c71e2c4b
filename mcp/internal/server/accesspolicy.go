package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	slashpath "path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
)

// An accessPolicy decides which files and addresses a client may name.
type accessPolicy struct {
	roots   []string // absolute, without symbolic links
	urls    []*url.URL
	maxFile int64
	// recordings is the directory of new recordings. It is also one of the roots.
	recordings string
}

// newAccessPolicy returns the policy of a configuration, which it checks. It creates the directory of new recordings if
// services or a fleet are allowed; its files may be read, too.
func newAccessPolicy(c Config) (*accessPolicy, error) {
	a := &accessPolicy{maxFile: c.MaxFile}
	for _, root := range c.Roots {
		real, err := realPath(root)
		if err != nil {
			return nil, fmt.Errorf("-root %s: %w", root, err)
		}
		if info, err := os.Stat(real); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("-root %s is not a directory", root)
		}
		a.roots = append(a.roots, real)
	}
	for _, text := range c.URLs {
		u, err := parseURL(text)
		if err != nil {
			return nil, fmt.Errorf("-url %s: %w", text, err)
		}
		a.urls = append(a.urls, u)
	}
	if c.Fleet != "" {
		if _, err := parseURL(c.Fleet); err != nil || !isURL(c.Fleet) {
			return nil, fmt.Errorf("-fleet %s is no address such as https://fleet.example.com", c.Fleet)
		}
	}
	if len(a.urls) > 0 || c.Fleet != "" {
		a.recordings = c.Recordings
		if a.recordings == "" {
			cache, err := os.UserCacheDir()
			if err != nil {
				return nil, fmt.Errorf("finding a directory for recordings: %w; name one with -recordings", err)
			}
			a.recordings = filepath.Join(cache, "whylate", "recordings")
		}
		if err := os.MkdirAll(a.recordings, 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of recordings: %w", err)
		}
		real, err := realPath(a.recordings)
		if err != nil {
			return nil, fmt.Errorf("-recordings %s: %w", a.recordings, err)
		}
		a.recordings, a.roots = real, append(a.roots, real)
	}
	return a, nil
}

// realPath returns the absolute path of an existing file, without symbolic links.
func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// resolveFile returns the absolute path, without symbolic links, of a regular file below one of the roots. A relative path is searched below each
// root in turn; the first file found counts. The error for a path outside the roots does not reveal whether the file exists.
func (a *accessPolicy) resolveFile(path string) (string, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", errors.New("name a file")
	}
	candidates := []string{path}
	if !filepath.IsAbs(path) {
		candidates = nil
		for _, root := range a.roots {
			candidates = append(candidates, filepath.Join(root, path))
		}
	}
	for _, c := range candidates {
		real, err := filepath.EvalSymlinks(c)
		if err != nil || !a.isBelowRoot(real) {
			if err == nil || !a.isBelowRoot(filepath.Clean(c)) {
				return "", fmt.Errorf("%q is outside of the directories that this server may read: start whylate-mcp with -root for it", path)
			}
			continue
		}
		info, err := os.Stat(real)
		switch {
		case err != nil:
			continue
		case !info.Mode().IsRegular():
			return "", fmt.Errorf("%q is not a regular file", path)
		case info.Size() > a.maxFile:
			return "", fmt.Errorf("%q has %d bytes, more than the %d that this server reads: cut it, or start whylate-mcp with a larger -max-file", path, info.Size(), a.maxFile)
		}
		return real, nil
	}
	return "", fmt.Errorf("%q: %w in any directory that this server may read", path, fs.ErrNotExist)
}

// openFile opens a regular file below one of the roots, of at most limit bytes; path is the result of resolveFile. The file may have been replaced
// since resolveFile: openFile does not follow a link out of the root and does not block on a pipe or device.
func (a *accessPolicy) openFile(path string, limit int64) (*os.File, error) {
	for _, name := range a.roots {
		rel, err := filepath.Rel(name, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		// Check the type first, because opening a device may have an effect and opening a pipe blocks until it has a writer.
		if info, err := root.Stat(rel); err != nil {
			return nil, err
		} else if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%q is not a regular file", path)
		}
		f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		switch {
		case err != nil:
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%q is not a regular file", path)
		case info.Size() > limit:
			err = fmt.Errorf("%q has %d bytes, more than the %d that are read", path, info.Size(), limit)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	return nil, fmt.Errorf("%q is outside of the directories that this server may read", path)
}

// isBelowRoot reports whether a path, absolute and without symbolic links, is in a directory that may be read.
func (a *accessPolicy) isBelowRoot(path string) bool {
	return slices.ContainsFunc(a.roots, func(root string) bool {
		rel, err := filepath.Rel(root, path)
		return err == nil && filepath.IsLocal(rel)
	})
}

// parseURL parses an http or https URL with a host; http is the default.
func parseURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q is neither http nor https", u.Scheme)
	case u.Host == "":
		return nil, errors.New("there is no host in it")
	}
	return u, nil
}

// resolveURL checks an address from a client against the allowed ones: scheme, host and port must be
// equal, and its path must be at or below the allowed path. It returns the address to use and, as
// public, the address for messages. Paths are compared decoded and without dots, and the result has
// the compared path, not the client's spelling. Credentials and queries come from the operator, never
// from a client.
func (a *accessPolicy) resolveURL(text string) (address, public string, err error) {
	u, err := parseURL(text)
	if err != nil {
		return "", "", fmt.Errorf("%q is not an address: %w", text, err)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", "", errors.New("an address may not hold credentials, a query or a fragment")
	}
	path := cleanPath(u.Path)
	for _, allowedURL := range a.urls {
		allowedPath := cleanPath(allowedURL.Path)
		rest, hasPrefix := strings.CutPrefix(path, allowedPath)
		if u.Scheme != allowedURL.Scheme || !strings.EqualFold(u.Host, allowedURL.Host) || !hasPrefix || rest != "" && rest[0] != '/' {
			continue
		}
		// A server, or a proxy before it, may decode a path twice, treat \ as /, or drop the text after a semicolon.
		if strings.ContainsFunc(rest, func(r rune) bool { return strings.ContainsRune(`%\;`, r) || !unicode.IsPrint(r) }) {
			return "", "", errors.New(`a path may not hold %, \, ; or invisible characters, also not escaped`)
		}
		out := *allowedURL
		out.Path, out.RawPath = path, ""
		publicURL := url.URL{Scheme: out.Scheme, Host: out.Host, Path: out.Path}
		return out.String(), publicURL.String(), nil
	}
	return "", "", fmt.Errorf("%s was not allowed: start whylate-mcp with -url %s://%s", u.Redacted(), u.Scheme, u.Host)
}

// cleanPath returns a decoded path without dots and without a trailing slash.
func cleanPath(p string) string { return strings.TrimSuffix(slashpath.Clean("/"+p), "/") }

// isURL reports whether a source is an address, not a file.
func isURL(source string) bool { return strings.Contains(source, "://") }
