{{/* The pod of an engine. Call with (dict "root" $ "each" (an item of sluice.engines) "worker" false). */}}
{{- define "sluice.enginePod" -}}
{{- $root := .root -}}{{- $each := .each -}}{{- $engine := .each.engine -}}{{- $worker := .worker -}}
{{- $spans := gt (int $engine.nodes) 1 -}}
{{- $gpus := int $engine.gpu.count -}}
metadata:
  labels:
    {{- /* No version of the chart here: an upgrade that changes nothing else must not load every model anew. */}}
    {{- include "sluice.selector" (dict "root" $root "component" $each.component) | nindent 4 }}
    sluice/engine: {{ $each.name }}
    sluice/role: engine
    {{- with $engine.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- with $engine.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "sluice.pod" (dict "root" $root "uid" $engine.runAsUser) | nindent 2 }}
  terminationGracePeriodSeconds: {{ add (int $engine.preStopSeconds) (include "sluice.total" $root | int) 30 }}
  {{- with $engine.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $engine.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  containers:
    - name: vllm
      image: {{ include "sluice.image" (dict "root" $root "image" $engine.image) }}
      imagePullPolicy: {{ $engine.image.pullPolicy }}
      {{- with $engine.command }}
      command: {{- toYaml . | nindent 8 }}
      {{- end }}
      args:
        - {{ $engine.model | quote }}
        - {{ printf "--served-model-name=%s" $each.model | quote }}
        - --host=0.0.0.0
        - --port=8000
        - --shutdown-timeout={{ include "sluice.total" $root }}
        {{- $tp := $engine.tensorParallelSize | default $gpus | default 1 }}
        - --tensor-parallel-size={{ int $tp }}
        {{- if $spans }}
        - --pipeline-parallel-size={{ int $engine.nodes }}
        - --nnodes=$(LWS_GROUP_SIZE)
        - --node-rank=$(LWS_WORKER_INDEX)
        - --master-addr=$(LWS_LEADER_ADDRESS)
        {{- if $worker }}
        - --headless
        {{- end }}
        {{- end }}
        - --gpu-memory-utilization={{ $engine.gpuMemoryUtilization }}
        {{- with $engine.maxModelLen }}
        - --max-model-len={{ int . }}
        {{- end }}
        {{- with $engine.quantization }}
        - {{ printf "--quantization=%s" . | quote }}
        {{- end }}
        {{- with $engine.schedulingPolicy }}
        - --scheduling-policy={{ . }}
        {{- end }}
        {{- with $engine.dtype }}
        - {{ printf "--dtype=%s" . | quote }}
        {{- end }}
        - --allowed-media-domains {{- /* of an empty list vLLM makes "all": a name that nobody can have stands for none */}}
        {{- range $root.Values.config.server.media_hosts | default (list "none.invalid") }}
        - {{ . | quote }}
        {{- end }}
        {{- range $engine.extraArgs }}
        - {{ . | quote }}
        {{- end }}
      env:
        - {name: HOME, value: /cache/home} # the only places that can be written are /cache, /tmp and /dev/shm
        - {name: USER, value: vllm} # torch asks for the user's name, and the image has no such user
        - {name: HF_HOME, value: /cache/huggingface}
        - {name: VLLM_CACHE_ROOT, value: /cache/vllm}
        - {name: VLLM_NO_USAGE_STATS, value: "1"}
        - {name: VLLM_MEDIA_URL_ALLOW_REDIRECTS, value: "0"} # an allowed host must not send the engine elsewhere
        {{- if $root.Values.engineApiKeySecret.name }}
        - name: VLLM_API_KEY
          valueFrom:
            secretKeyRef: {{- dict "name" $root.Values.engineApiKeySecret.name "key" $root.Values.engineApiKeySecret.key | toYaml | nindent 14 }}
        {{- end }}
        {{- if $engine.hubTokenSecret.name }}
        - name: HF_TOKEN
          valueFrom:
            secretKeyRef: {{- dict "name" $engine.hubTokenSecret.name "key" $engine.hubTokenSecret.key | toYaml | nindent 14 }}
        {{- end }}
        {{- with $engine.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- if not $worker }}
      ports:
        - {name: http, containerPort: 8000, protocol: TCP}
      startupProbe: # fetching, loading and compiling take minutes
        httpGet: {path: /health, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: {{ mul (int $engine.startupMinutes) 6 }}
      livenessProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 15
        timeoutSeconds: 10
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- end }}
      lifecycle:
        preStop: # vLLM still answers its health check while it drains: gateways have to let go before
          exec: {command: [sleep, {{ $engine.preStopSeconds | quote }}]}
      resources:
        requests:
          {{- toYaml $engine.resources.requests | nindent 10 }}
          {{- if $gpus }}
          {{ $engine.gpu.resource }}: {{ $gpus }}
          {{- end }}
        {{- if or $gpus $engine.resources.limits }}
        limits:
          {{- with $engine.resources.limits }}{{ toYaml . | nindent 10 }}{{ end }}
          {{- if $gpus }}
          {{ $engine.gpu.resource }}: {{ $gpus }}
          {{- end }}
        {{- end }}
      securityContext: {{- include "sluice.containerSecurity" $engine.readOnlyRootFilesystem | nindent 8 }}
      volumeMounts:
        - {name: cache, mountPath: /cache}
        - {name: shm, mountPath: /dev/shm}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $engine.shmSize }}}
    - name: tmp
      emptyDir: {}
    {{- if or $engine.cache.existingClaim (not $engine.cache.enabled) }}
    - name: cache
      {{- if $engine.cache.enabled }}
      persistentVolumeClaim: {claimName: {{ $engine.cache.existingClaim | quote }}}
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- else if $spans }}
    - name: cache
      ephemeral:
        volumeClaimTemplate:
          spec: {{- include "sluice.claimSpec" $engine.cache | nindent 12 }}
    {{- end }}
  {{- $selector := deepCopy $engine.nodeSelector }}
  {{- with $engine.gpu.product }}{{ $_ := set $selector "nvidia.com/gpu.product" . }}{{ end }}
  {{- with $selector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $engine.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $engine.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "sluice.claimSpec" -}}
accessModes: [{{ .accessMode }}]
{{- with .storageClass }}
storageClassName: {{ . | quote }}
{{- end }}
resources:
  requests: {storage: {{ .size }}}
{{- end }}
