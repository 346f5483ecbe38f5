{{/* sluice.yaml, from config, models and keys. */}}
{{- define "sluice.config" -}}
{{- $server := mergeOverwrite (deepCopy .Values.config.server) (dict "host" "0.0.0.0" "port" 8080 "drain_s" .Values.config.timeouts.total_s) -}}
{{- $models := list -}}
{{- range $model := .Values.models -}}
{{- $engines := list -}}
{{- range (include "sluice.engines" $ | fromYaml).engines -}}
{{- if eq .model $model.name -}}
{{- $entry := dict "name" (printf "%s-%s" $model.name .engine.name) "url" (printf "http://%s.%s.svc:8000" .name $.Release.Namespace) "weight" .engine.weight "served_model" $model.name -}}
{{- if $.Values.engineApiKeySecret.name -}}{{- $_ := set $entry "api_key" "${VLLM_API_KEY}" -}}{{- end -}}
{{- with .engine.schedulingPolicy -}}{{- $_ := set $entry "scheduling" . -}}{{- end -}}
{{- $engines = append $engines $entry -}}
{{- end -}}
{{- end -}}
{{- $entry := mergeOverwrite (dict "name" $model.name) (deepCopy (default dict $model.options)) (dict "engines" (concat $engines (default list $model.external))) -}}
{{- with $model.aliases -}}{{- $_ := set $entry "aliases" . -}}{{- end -}}
{{- $models = append $models $entry -}}
{{- end -}}
{{- $config := dict "server" $server "timeouts" .Values.config.timeouts "models" $models "keys" .Values.keys "chain" .Values.config.chain -}}
{{- $gateways := ternary .Values.gateway.replicas .Values.autoscaling.gateway.max (eq .Values.autoscaling.mode "none") -}}
{{- $url := "" -}}
{{- if .Values.redis.enabled -}}
{{- $url = printf "redis://%s-redis.%s.svc:6379/0" (include "sluice.fullname" .) .Release.Namespace -}}
{{- else if .Values.redis.externalUrlSecret.name -}}
{{- $url = "${REDIS_URL}" -}}
{{- end -}}
{{- $limits := deepCopy .Values.config.limits -}}
{{- if $url -}}
{{- $limits = mergeOverwrite (dict "replicas" $gateways) $limits (dict "redis" $url) -}}
{{- end -}}
{{- with $limits -}}{{- $_ := set $config "limits" . -}}{{- end -}}
{{- mergeOverwrite $config (deepCopy .Values.config.extra) | toYaml -}}
{{- end }}
