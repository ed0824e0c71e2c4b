package store

import (
	"context"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// A Pod is a pod of a service with the time of its requests by cause.
type Pod struct {
	Pod      string           `json:"pod"`
	Node     string           `json:"node"`
	Version  string           `json:"version"`
	Requests int64            `json:"requests"`
	NS       map[string]int64 `json:"ns" doc:"by cause"`
}

// Pods returns the pods of a selection, one for each version of a pod, in the order of their names, with their requests and their time in ns by
// cause.
func (s *Store) Pods(ctx context.Context, sel Selection) ([]Pod, error) {
	inSelection, args := s.selectionCondition("costs", sel, time.Minute)
	type key struct{ pod, node, version string }
	index := make(map[key]int)
	var out []Pod
	err := eachRow(ctx, s.rowReader, func(scan func(...any) error) error {
		var k key
		var cause string
		var n, ns int64
		if err := scan(&k.pod, &k.node, &k.version, &cause, &n, &ns); err != nil {
			return err
		}
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k] = i
			out = append(out, Pod{Pod: k.pod, Node: k.node, Version: k.version, NS: make(map[string]int64)})
		}
		out[i].Requests = rows.AddClamped(out[i].Requests, n)
		if cause != "" {
			out[i].NS[cause] = rows.AddClamped(out[i].NS[cause], ns)
		}
		return nil
	}, `SELECT pod, node, version, cause, `+s.sumExpr("n")+`, `+s.sumExpr("ns")+` FROM `+s.tableExpr("costs")+` WHERE `+inSelection+` GROUP BY pod, node, version, cause ORDER BY pod, node, version, cause`, args...)
	return out, err
}
