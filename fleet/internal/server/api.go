package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/service/flight"
)

// A SelectionQuery holds the parameters that select a period, a service and an environment. It is exported because huma reads no
// parameters from an embedded type that is not.
type SelectionQuery struct {
	Service     string `query:"service" doc:"all services if empty"`
	Environment string `query:"environment" doc:"all environments if empty"`
	From        string `query:"from" doc:"RFC 3339, or a duration before to such as 24h; 168h if empty"`
	To          string `query:"to" doc:"RFC 3339; now if empty"`
}

// selection returns the selection that the parameters describe. The period ends now and begins 168 hours before its end, unless
// they are given.
func (q *SelectionQuery) selection(now time.Time) (sel store.Selection, err error) {
	sel = store.Selection{Service: q.Service, Environment: q.Environment, To: now}
	if q.To != "" {
		if sel.To, err = time.Parse(time.RFC3339, q.To); err != nil {
			return sel, fmt.Errorf("to=%q is no time such as 2026-01-02T15:04:05Z", q.To)
		}
	}
	from := cmp.Or(q.From, "168h")
	if d, err := time.ParseDuration(from); err == nil && d > 0 {
		sel.From = sel.To.Add(-d)
	} else if sel.From, err = time.Parse(time.RFC3339, from); err != nil {
		return sel, fmt.Errorf("from=%q is neither a time such as 2026-01-02T15:04:05Z nor a duration such as 24h", q.From)
	}
	if !sel.From.Before(sel.To) {
		return sel, errors.New("from must be before to")
	}
	return sel, nil
}

type response[T any] struct{ Body T }

// addOperation adds an operation of the API: GET of path, with the answer as JSON, and summary as its line in the
// documentation. Errors other than those of huma become status 500.
func addOperation[I, T any](s *Server, api huma.API, path, summary string, answer func(context.Context, *I) (T, error)) {
	huma.Register(api, huma.Operation{OperationID: huma.GenerateOperationID(http.MethodGet, path, new(response[T])), Method: http.MethodGet, Path: path, Summary: summary,
		Errors: []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusInternalServerError}}, func(ctx context.Context, input *I) (*response[T], error) {
		out, err := answer(ctx, input)
		switch {
		case errors.As(err, new(huma.StatusError)):
			return nil, err
		case err != nil:
			s.Log.Error("query", "path", path, "error", err)
			return nil, huma.Error500InternalServerError("the store does not answer")
		}
		return &response[T]{out}, nil
	})
}

// addSelectionOperation adds an operation, as addOperation does, whose answer depends on the selection in the query.
// needsService makes the service required. An invalid selection becomes status 422.
func addSelectionOperation[T any](s *Server, api huma.API, path, summary string, needsService bool, answer func(context.Context, store.Selection) (T, error)) {
	addOperation(s, api, path, summary, func(ctx context.Context, q *SelectionQuery) (empty T, err error) {
		sel, err := q.selection(time.Now())
		if err != nil {
			return empty, huma.Error422UnprocessableEntity(err.Error())
		}
		if needsService && sel.Service == "" {
			return empty, huma.Error422UnprocessableEntity("name a service: ?service=NAME")
		}
		return answer(ctx, sel)
	})
}

// addAPI adds the API and its description at /openapi.json and /openapi.yaml.
func (s *Server) addAPI(mux *http.ServeMux) {
	apiConfig := huma.DefaultConfig("whylate fleet", "1")
	apiConfig.DocsPath, apiConfig.SchemasPath, apiConfig.CreateHooks = "", "", nil // the HTML page with the documentation would load scripts from another server
	api := humago.New(mux, apiConfig)
	s.describeUpload(api.OpenAPI())
	addSelectionOperation(s, api, "/v1/findings", "Findings, those first whose fix would win most", false, func(ctx context.Context, sel store.Selection) ([]store.Problem, error) {
		problems, _, err := s.Store.Overview(ctx, sel)
		return problems, err
	})
	addSelectionOperation(s, api, "/v1/versions", "Versions of services, the newest of each first", false, func(ctx context.Context, sel store.Selection) ([]store.Version, error) {
		_, versions, err := s.Store.Overview(ctx, sel)
		return versions, err
	})
	addSelectionOperation(s, api, "/v1/series", "What requests of a service spent their time on, over time", true, func(ctx context.Context, sel store.Selection) ([]store.Point, error) {
		return s.Store.Series(ctx, sel, stepOf(sel))
	})
	addSelectionOperation(s, api, "/v1/pods", "Pods of a service, and which differ from the others", true, s.judgedPods)
	addOperation(s, api, "/v1/moments", "The slowest requests of a range, or all known of a trace", func(ctx context.Context, query *struct {
		SelectionQuery
		Trace string `query:"trace" doc:"a trace id in hexadecimal digits"`
	}) ([]store.Moment, error) {
		sel, err := query.selection(time.Now())
		if err != nil {
			return nil, huma.Error422UnprocessableEntity(err.Error())
		}
		return s.Store.Moments(ctx, sel, query.Trace, 100)
	})
	addOperation(s, api, "/v1/recordings/{id}", "What is known of a recording", func(ctx context.Context, query *struct {
		ID string `path:"id" pattern:"^[0-9a-f]{32}$"`
	}) (*store.Recording, error) {
		r, err := s.Store.Recording(ctx, query.ID)
		if r == nil && err == nil {
			err = huma.Error404NotFound("there is no such recording")
		}
		return r, err
	})
	addOperation(s, api, "/v1/report", "The newest reports of a service's version as one (whylate.report/v1), for whylate diff and check --baseline", func(ctx context.Context, query *versionQuery) (any, error) {
		return s.mergeVersion(ctx, query.Service, query.Version, query.Environment)
	})
	addOperation(s, api, "/v1/compare", "Two versions of a service side by side (whylate.diff/v1)", func(ctx context.Context, query *struct {
		Service     string `query:"service" required:"true"`
		Environment string `query:"environment"`
		Old         string `query:"old" required:"true" doc:"version"`
		New         string `query:"new" required:"true" doc:"version"`
	}) (any, error) {
		return s.Compare(ctx, query.Service, query.Environment, query.Old, query.New)
	})
}

type versionQuery struct {
	Service     string `query:"service" required:"true"`
	Version     string `query:"version"`
	Environment string `query:"environment"`
}

// describeUpload documents the upload of recordings. It is not an operation of huma, because huma would read the whole body into
// memory.
func (s *Server) describeUpload(doc *huma.OpenAPI) {
	response := func(t string) *huma.Response { return &huma.Response{Description: t} }
	header := func(name, t string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Description: t, Schema: &huma.Schema{Type: "string"}}
	}
	binary := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	doc.AddOperation(&huma.Operation{
		OperationID: "post-recording", Method: http.MethodPost, Path: flight.UploadPath, Summary: "Send a .whylate file or a Go execution trace",
		Parameters: []*huma.Param{header("Authorization", "Bearer, and the service's token"), header("Content-Encoding", "gzip or nothing"),
			header("Whylate-Version", "of a bare trace"), header("Whylate-Environment", "of a bare trace"), header("Whylate-Pod", "of a bare trace"), header("Whylate-Node", "of a bare trace")},
		RequestBody: &huma.RequestBody{Required: true, Content: binary},
		Responses: map[string]*huma.Response{
			"202": response("it is durable; the answer has its id"), "400": response("it is damaged"), "401": response("no valid token"), "403": response("another service's token"),
			"413": response("it is too large"), "415": response("it is no recording"), "429": response("the service sends too much; see Retry-After"),
			"503": response("it could not be kept; see Retry-After"), "507": response("the disk is full; see Retry-After"),
		},
	})
}
