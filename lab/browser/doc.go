// Package browser tests the pages that package report/html writes in a real
// browser, headless Chromium, over the DevTools protocol. It is a module of
// its own, so that the protocol's client is no requirement of the tool's.
//
// Without Chromium (Debian: apt-get install chromium) the tests are skipped.
// They leave screenshots in artefacts/, at 1280 and at 400 pixels, light and
// dark: pages are also to be looked at.
package browser
