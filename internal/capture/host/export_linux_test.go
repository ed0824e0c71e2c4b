package host

// What the tests in package host_test need: those that say what samples tell import hostjoin, which imports this package.
var StartChild, HaltAndCountChild, SampleFor, ReadBack = start, haltAndCount, sampleFor, readBack
