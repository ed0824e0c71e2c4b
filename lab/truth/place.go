package main

import "errors"

// errPlace reports that this machine does not have the CPUs or quota that a service's Place requires.
var errPlace = errors.New("this machine cannot give the service its place")
