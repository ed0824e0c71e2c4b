module github.com/whylate/whylate/lab/grafana

go 1.26.0

require (
	github.com/grafana/grafana-foundation-sdk/go v0.0.22
	github.com/prometheus/client_golang v1.23.2
	github.com/whylate/whylate v0.0.0
	github.com/whylate/whylate/adapters/otel v0.0.0
	github.com/whylate/whylate/adapters/prometheus v0.0.0
	github.com/whylate/whylate/service v0.0.0
	go.opentelemetry.io/otel/exporters/prometheus v0.61.0
	go.opentelemetry.io/otel/sdk/metric v1.39.0
)
