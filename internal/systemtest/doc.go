// Package systemtest has the tests that run services under real limits of Linux: control groups, lost packets, a restarted shop.
package systemtest
