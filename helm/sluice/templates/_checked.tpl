{{/* What would only show when it is applied or runs is told when it is rendered. values.schema.json has the rest. */}}
{{- define "sluice.checked" -}}
{{- include "sluice.checkedConfig" . -}}
{{- include "sluice.checkedModels" . -}}
{{- include "sluice.checkedEngines" . -}}
{{- include "sluice.checkedAround" . -}}
{{- end }}

{{- define "sluice.checkedConfig" -}}
{{- if not .Values.config.existingSecret -}}
{{- if not .Values.models -}}{{- fail "models: name at least one model, with engines or external (examples/ has whole profiles)" -}}{{- end -}}
{{- if not .Values.keys -}}{{- fail "keys: at least one key has to be there, the gateway is reached by others; `sluice keys new --name team-a` makes one" -}}{{- end -}}
{{- end -}}
{{- range list "total_s" "idle_s" -}}
{{- if not (get $.Values.config.timeouts .) -}}{{- fail (printf "config.timeouts.%s: has to be there, grace periods follow from it" .) -}}{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range .Values.keys -}}
{{- if has .name $names -}}{{- fail (printf "keys: two are called %s" .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- range $section := list "server" "timeouts" "models" "keys" "chain" "limits" -}}
{{- if hasKey $.Values.config.extra $section -}}{{- fail (printf "config.extra: %s has a value of its own in this chart" $section) -}}{{- end -}}
{{- end -}}
{{- $files := keys .Values.words.files -}}
{{- range .Values.words.existing -}}
{{- range .keys -}}
{{- if has . $files -}}{{- fail (printf "words: two lists would be words/%s; give one of them another name" .) -}}{{- end -}}
{{- $files = append $files . -}}
{{- end -}}
{{- end -}}
{{- if not .Values.config.existingSecret -}}
{{- range .Values.config.chain -}}
{{- range $list := default list (get (default dict .options) "lists") -}}
{{- if and (kindIs "string" $list) (hasPrefix "words/" $list) (not (has (trimPrefix "words/" $list) $files)) -}}{{- fail (printf "config.chain: %s is neither in words.files nor in words.existing" $list) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "sluice.checkedModels" -}}
{{- $names := list -}}
{{- range .Values.models -}}
{{- if not (or .engines .external) -}}{{- fail (printf "models: %s has neither engines nor external" .name) -}}{{- end -}}
{{- $called := concat (list .name) (default list .aliases) -}}
{{- range $called -}}
{{- if has . $names -}}{{- fail (printf "models: two are called %s; several engines of one model go into its engines" .) -}}{{- end -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "sluice.checkedEngines" -}}
{{- $names := list -}}
{{- range (include "sluice.engines" . | fromYaml).engines -}}
{{- $spans := gt (int .engine.nodes) 1 -}}
{{- if not .engine.model -}}{{- fail (printf "models: engine %s of %s does not say which model it loads (model: …)" .engine.name .model) -}}{{- end -}}
{{- range $name := ternary (list .name (printf "%s-g" .name)) (list .name) $spans -}}
{{- if has $name $names -}}{{- fail (printf "models: two engines make the name %s; give one of them another name" $name) -}}{{- end -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- if and .engine.cache.existingClaim (ne .engine.cache.accessMode "ReadWriteMany") -}}
{{- if $spans -}}{{- fail (printf "models: engine %s spans nodes, so its claim has to be ReadWriteMany" .engine.name) -}}{{- end -}}
{{- if or (gt (int .engine.replicas) 1) .engine.autoscaling.enabled -}}{{- fail (printf "models: engine %s may have several pods, so its claim has to be ReadWriteMany" .engine.name) -}}{{- end -}}
{{- end -}}
{{- if and .engine.tensorParallelSize (gt (int .engine.gpu.count) 0) (gt (int .engine.tensorParallelSize) (int .engine.gpu.count)) -}}{{- fail (printf "models: engine %s splits its model over %v devices of a node that gives it %v" .engine.name .engine.tensorParallelSize .engine.gpu.count) -}}{{- end -}}
{{- if and .engine.autoscaling.enabled (ne $.Values.autoscaling.mode "keda") -}}{{- fail (printf "models: engine %s is to scale by itself; that takes autoscaling.mode: keda" .engine.name) -}}{{- end -}}
{{- if gt (int .engine.autoscaling.min) (int .engine.autoscaling.max) -}}{{- fail (printf "models: engine %s: autoscaling.min %v is over its max %v" .engine.name .engine.autoscaling.min .engine.autoscaling.max) -}}{{- end -}}
{{- include "sluice.checkedLabels" (dict "at" (printf "models: engine %s: podLabels" .engine.name) "labels" .engine.podLabels) -}}
{{- end -}}
{{- end }}

{{- define "sluice.checkedAround" -}}
{{- $name := include "sluice.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}{{- fail (printf "fullnameOverride: %s is no name for a Service (a letter, then letters, digits and -)" $name) -}}{{- end -}}
{{- if and .Values.redis.enabled .Values.redis.externalUrlSecret.name -}}{{- fail "redis: either enabled or externalUrlSecret" -}}{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and (ne .mode "none") (gt (int .gateway.min) (int .gateway.max)) -}}{{- fail (printf "autoscaling.gateway: min %v is over max %v" .gateway.min .gateway.max) -}}{{- end -}}
{{- if and (eq .mode "cpu") (not (get (default dict $.Values.gateway.resources.requests) "cpu")) -}}{{- fail "autoscaling.mode: cpu is a share of gateway.resources.requests.cpu, which has to be there" -}}{{- end -}}
{{- end -}}
{{- $scraped := or .Values.monitoring.serviceMonitor (eq .Values.autoscaling.mode "keda") -}}
{{- if and $scraped (eq (default "open" .Values.config.server.metrics) "operator") (not .Values.monitoring.keySecret.name) -}}{{- fail "config.server.metrics: operator: Prometheus needs an operator's key, for alerts and for KEDA; monitoring.keySecret names the Secret with it" -}}{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}{{- fail "ingress.hosts: at least one host, such as llm.example.com" -}}{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}{{- fail "httpRoute.parentRefs: the Gateway that it belongs to, [{name: my-gateway}]" -}}{{- end -}}
{{- include "sluice.checkedLabels" (dict "at" "gateway.podLabels" "labels" .Values.gateway.podLabels) -}}
{{- include "sluice.checkedLabels" (dict "at" "monitoring.labels" "labels" .Values.monitoring.labels) -}}
{{- end }}

{{/* Labels that select are the chart's. Call with (dict "at" … "labels" …). */}}
{{- define "sluice.checkedLabels" -}}
{{- $at := .at -}}
{{- range $label := keys (default dict .labels) -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|version|part-of|managed-by)|helm\\.sh/chart|sluice/(engine|role))$" $label -}}{{- fail (printf "%s: %s is the chart's own" $at $label) -}}{{- end -}}
{{- end -}}
{{- end }}
