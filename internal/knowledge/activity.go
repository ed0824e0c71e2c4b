package knowledge

import (
	_ "embed"
	"sync"
)

//go:embed activities.tsv
var activitiesText string

// activities has the activities by function and by the function that it calls.
var activities = sync.OnceValue(func() map[string]map[string]string {
	out := make(map[string]map[string]string)
	for _, columns := range rows(activitiesText) {
		fn, callee, activity := columns[0], columns[1], columns[2]
		if out[fn] == nil {
			out[fn] = make(map[string]string)
		}
		out[fn][callee] = activity
	}
	return out
})

// Activity describes in words what a function does while it calls callee; "" if that is not known. The function's line
// numbers change with each release, and its name means nothing to readers who do not know its source.
func Activity(fn, callee string) string { return activities()[fn][callee] }

// HasActivities reports whether Activity knows any callee of a function.
func HasActivities(fn string) bool { return activities()[fn] != nil }
