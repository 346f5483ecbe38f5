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

{{/* What would only show at run time is told when it is rendered. */}}
{{- define "sluice.checked" -}}
{{- if not .Values.config.existingSecret -}}
{{- if not .Values.models -}}{{- fail "models: name at least one model, with engines or external (examples/ has whole profiles)" -}}{{- end -}}
{{- if not .Values.keys -}}{{- fail "keys: at least one key has to be there, the gateway is reached by others; `sluice keys new --name team-a` makes one" -}}{{- end -}}
{{- end -}}
{{- range .Values.models -}}
{{- if not (or .engines .external) -}}{{- fail (printf "models: %s has neither engines nor external" .name) -}}{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range (include "sluice.engines" . | fromYaml).engines -}}
{{- if not .engine.model -}}{{- fail (printf "models: engine %s of %s does not say which model it loads (model: …)" .engine.name .model) -}}{{- end -}}
{{- if has .name $names -}}{{- fail (printf "models: two engines make the name %s; give one of them another name" .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- if and .engine.cache.existingClaim (gt (int .engine.nodes) 1) (ne .engine.cache.accessMode "ReadWriteMany") -}}{{- fail (printf "models: engine %s spans nodes, so its claim has to be ReadWriteMany" .engine.name) -}}{{- end -}}
{{- if and .engine.tensorParallelSize (gt (int .engine.gpu.count) 0) (gt (int .engine.tensorParallelSize) (int .engine.gpu.count)) -}}{{- fail (printf "models: engine %s splits its model over %v devices of a node that gives it %v" .engine.name .engine.tensorParallelSize .engine.gpu.count) -}}{{- end -}}
{{- if and .engine.autoscaling.enabled (ne $.Values.autoscaling.mode "keda") -}}{{- fail (printf "models: engine %s is to scale by itself; that takes autoscaling.mode: keda" .engine.name) -}}{{- end -}}
{{- end -}}
{{- if and .Values.redis.enabled .Values.redis.externalUrlSecret.name -}}{{- fail "redis: either enabled or externalUrlSecret" -}}{{- end -}}
{{- end }}
