package host

// Helpers for package host_test, whose tests import hostjoin, which imports this package.
var StartChild, HaltAndCountChild, SampleFor, ReadBack = start, haltAndCount, sampleFor, readBack
