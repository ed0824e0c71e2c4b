{{- /* Labels by which pods are selected. The argument is a list: the root, and the role or "". */ -}}
{{- define "fleet.labels" -}}
app.kubernetes.io/name: whylate-fleet
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
{{- with index . 1 }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- /* The name of an object of a role. */ -}}
{{- define "fleet.name" -}}
{{ (index . 0).Release.Name }}{{ with index . 1 }}-{{ . }}{{ end }}
{{- end -}}

{{- /* The template of a pod. */ -}}
{{- define "fleet.pod" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $values := $root.Values -}}
{{- $scrapes := and $values.scrape.enabled (has $role (list "" "scrape")) -}}
metadata:
  labels:
    {{- include "fleet.labels" . | nindent 4 }}
  {{- if $scrapes }}
  annotations:
    checksum/scrape: {{ toYaml $values.scrape.configs | sha256sum }} # the file is read at the start
  {{- end }}
spec:
  automountServiceAccountToken: {{ $scrapes }}
  {{- if $scrapes }}
  serviceAccountName: {{ include "fleet.name" . }}
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  terminationGracePeriodSeconds: 60
  securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: fleet
      image: {{ printf "%s:%s" $values.image.repository (default $root.Chart.AppVersion $values.image.tag) | quote }}
      args:
        - -dir=/data
        - -listen=:4319
        - -tls-cert=/tls/tls.crt
        - -tls-key=/tls/tls.key
        - -log=json
        - -drain=5s
        {{- with $role }}
        - -target={{ . }}
        {{- end }}
        {{- if $scrapes }}
        - -scrape=/scrape/scrape.yaml
        - -allow-private={{ $values.scrape.allowPrivate }}
        {{- end }}
        {{- if has $role (list "" "work") }}
        - -workers={{ $values.workers }}
        {{- end }}
        {{- range $flag, $value := $values.flags }}
        - {{ printf "-%s=%s" $flag $value | quote }}
        {{- end }}
        - serve
      env:
        - {name: TMPDIR, value: /data/tmp}
        {{- with $values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if $role }}
      envFrom:
        - secretRef: {name: {{ $values.roles.enginesSecret }}}
      {{- end }}
      ports:
        - {name: https, containerPort: 4319}
      readinessProbe:
        httpGet: {path: /readyz, port: https, scheme: HTTPS}
        {{- if $role }}
        timeoutSeconds: 10 # it asks the engines
        {{- end }}
      livenessProbe:
        httpGet: {path: /healthz, port: https, scheme: HTTPS}
        periodSeconds: 30
        timeoutSeconds: 10
      resources:
        {{- toYaml (get (dict "" $values.resources "work" $values.roles.workResources) $role | default $values.roles.resources) | nindent 8 }}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
      volumeMounts:
        - {name: data, mountPath: /data}
        - {name: tls, mountPath: /tls, readOnly: true}
        {{- if $scrapes }}
        - {name: scrape, mountPath: /scrape, readOnly: true}
        {{- end }}
  volumes:
    {{- if $role }}
    - name: data # files on their way: nothing is lost with it
      emptyDir: {sizeLimit: 10Gi}
    {{- end }}
    - name: tls
      secret: {secretName: {{ $values.tlsSecret }}}
    {{- if $scrapes }}
    - name: scrape
      configMap: {name: {{ include "fleet.name" . }}-scrape}
    {{- end }}
{{- end -}}
