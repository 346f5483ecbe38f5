{{/* Names, labels and the pieces that several templates share. */}}

{{- define "sluice.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $both := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $both .Values.fullnameOverride | trunc 21 | trimSuffix "-" -}}
{{- end }}

{{/* What selects: never changes over upgrades. Call with (dict "root" $ "component" "gateway"). */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: sluice
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "sluice.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end }}

{{- define "sluice.serviceAccountName" -}}
{{- default (ternary (include "sluice.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{/* How every pod of ours runs: no token, no injected service variables, no root. */}}
{{- define "sluice.pod" -}}
serviceAccountName: {{ include "sluice.serviceAccountName" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .uid }}
  runAsGroup: {{ .uid }}
  fsGroup: {{ .uid }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sluice.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: {{ . }}
capabilities: {drop: [ALL]}
{{- end }}

{{- define "sluice.configSecret" -}}
{{- default (printf "%s-config" (include "sluice.fullname" .)) .Values.config.existingSecret -}}
{{- end }}

{{/* Engines as a list: [{model, engine, name, component}], the defaults filled in. As YAML under "engines". */}}
{{- define "sluice.engines" -}}
{{- $engines := list -}}
{{- range $model := .Values.models -}}
{{- range $given := default list $model.engines -}}
{{- $engine := mergeOverwrite (deepCopy $.Values.engineDefaults) (deepCopy $given) -}}
{{- /* A StatefulSet's name and its revision's hash are one label of 63 characters; the version is never cut off. */ -}}
{{- $slug := regexReplaceAll "[^a-z0-9]+" (lower $model.name) "-" | trunc (int (sub 25 (len $given.name))) | trimAll "-" -}}
{{- $slug = printf "%s-%s" $slug $given.name -}}
{{- $engines = append $engines (dict "model" $model.name "engine" $engine "component" (printf "engine-%s" $slug) "name" (printf "%s-%s" (include "sluice.fullname" $) $slug)) -}}
{{- end -}}
{{- end -}}
{{- dict "engines" $engines | toYaml -}}
{{- end }}

{{- define "sluice.redisUrlEnv" -}}
{{- if .Values.redis.externalUrlSecret.name }}
- name: REDIS_URL
  valueFrom:
    secretKeyRef: {{- dict "name" .Values.redis.externalUrlSecret.name "key" .Values.redis.externalUrlSecret.key | toYaml | nindent 6 }}
{{- end }}
{{- if .Values.engineApiKeySecret.name }}
- name: VLLM_API_KEY
  valueFrom:
    secretKeyRef: {{- dict "name" .Values.engineApiKeySecret.name "key" .Values.engineApiKeySecret.key | toYaml | nindent 6 }}
{{- end }}
{{- end }}

{{- define "sluice.grace" -}}
{{- add (int .Values.gateway.preStopSeconds) (include "sluice.total" . | int) 15 -}}
{{- end }}

{{/* Whole seconds that one exchange may take, and that a proxy has to wait: never less than was said. */}}
{{- define "sluice.total" -}}
{{- .Values.config.timeouts.total_s | float64 | ceil | int64 -}}
{{- end }}

{{- define "sluice.patience" -}}
{{- maxf .Values.config.timeouts.total_s .Values.config.timeouts.idle_s | ceil | int64 -}}
{{- end }}

{{/* Gateways' series of this release: others in the namespace have pods of other names. */}}
{{- define "sluice.gatewaySeries" -}}
{{- printf "namespace=%q,pod=~\"%s-[a-z0-9]+-[a-z0-9]+\"" .Release.Namespace (include "sluice.fullname" .) -}}
{{- end }}
