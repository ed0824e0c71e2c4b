// Package service is the root of what a service imports from whylate: see
// its sub-packages cgroup, tune, auto, probe, pool, debugz, mark and flight.
package service
