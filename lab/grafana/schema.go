//go:build full

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// checkSchema reads a dashboard by Grafana's published schema. Its 46 packages are built by .ci/full only.
func checkSchema(text []byte) error {
	plugins.RegisterDefaultPlugins() // the schemas of panels and queries
	//lint:ignore SA1019 the newer form of dashboards is not what the dialog of every Grafana in use imports
	var schema dashboard.Dashboard
	// Without faults it returns an empty list, which is no nil error, and for which it drops the panels.
	if err := schema.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		return err
	}
	return nil
}
