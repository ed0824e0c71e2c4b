package main

import "errors"

// errPlace says that this machine cannot give a service its place.
var errPlace = errors.New("this machine cannot give the service its place")
