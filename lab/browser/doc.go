// Package browser tests the pages of package report/html and of the live view in headless Chromium, over the DevTools
// protocol. It is a separate module, so that the tool does not require the protocol's client.
//
// Without Chromium (Debian: apt-get install chromium) the tests are skipped. They write screenshots to artefacts/, at 1280 and
// 400 pixels, light and dark, for a person to look at.
package browser
