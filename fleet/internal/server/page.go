package server

import (
	"bytes"
	"html/template"
	"net/http"
	"time"
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"took": func(ns int64) string {
		d := time.Duration(ns)
		if d >= time.Second {
			return d.Round(10 * time.Millisecond).String()
		}
		return d.Round(10 * time.Microsecond).String()
	},
	"clock": func(t time.Time) string { return t.Format("2006-01-02 15:04:05") },
}).Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>whylate fleet</title>
<style>
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%;margin:0 0 2em}td,th{text-align:left;vertical-align:top;padding:.4em .8em .4em 0;border-bottom:1px solid #ddd}
td:nth-child(2),td:nth-child(5){white-space:nowrap}td.n,th.n{text-align:right;white-space:nowrap}code,small{color:#555;overflow-wrap:anywhere}.win{font-weight:600}
</style>
<h1>{{if .Service}}<a href="/">whylate fleet</a>: {{.Service}}{{else}}whylate fleet{{end}}</h1>
<h2>What a fix would win most</h2>
{{if .Findings}}<table><tr><th class=n>would win<th>service<th>finding<th>versions<th>seen<th>newest recording
{{range .Findings}}<tr><td class="n win">{{if .WinEachRead}}{{took .WinEachRead}}<br><small>a recording</small>{{else}}<small>not known</small>{{end}}
<td><a href="/service/{{.Service}}">{{.Service}}</a><br><small>{{.Group}}</small>
<td><b>{{.Title}}</b>{{with .Site}}<br><code>{{.}}</code>{{end}}<br>{{.Fix}}
<td>{{.FirstIn}}{{if ne .FirstIn .LastIn}} to {{.LastIn}}{{end}}
<td><small>first {{clock .First}}<br>last {{clock .Last}}<br>in {{.Recordings}} recordings</small>
<td><a href="/recordings/{{.Recording}}/report">report</a><br><a href="/recordings/{{.Recording}}/raw">file</a>
{{end}}</table>{{else}}<p>No findings yet. {{end}}
<h2>Versions</h2>
<table><tr><th>service<th>version<th>first seen<th class=n>requests<th class=n>median<th class=n>99th percentile
{{range .Versions}}<tr><td><a href="/service/{{.Service}}">{{.Service}}</a><td>{{.Version}}<td>{{clock .First}}<td class=n>{{.Requests}}<td class=n>≤ {{took .P50NS}}<td class=n>≤ {{took .P99NS}}
{{end}}</table>
<p><small>Recordings: {{range $s, $n := .States}}{{$n}} {{$s}}. {{end}}Flight recorders keep slow moments, so requests here are not a fair sample of all.</small>
`))

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	data := struct {
		Service                    string
		Findings, Versions, States any
	}{Service: r.PathValue("service")}
	var err [3]error
	data.Findings, err[0] = s.Store.Findings(r.Context(), data.Service)
	data.Versions, err[1] = s.Store.Versions(r.Context(), data.Service)
	data.States, err[2] = s.Store.States(r.Context())
	var out bytes.Buffer
	for _, err := range append(err[:], page.Execute(&out, data)) {
		if err != nil {
			s.json(w, nil, err)
			return
		}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes())
}
