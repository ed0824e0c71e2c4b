//go:build go1.25

package aware

const since125 = true
