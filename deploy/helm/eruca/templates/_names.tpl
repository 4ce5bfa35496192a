{{/* Names and labels that several templates need. */}}

{{- define "eruca.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "eruca.selector" -}}
app.kubernetes.io/name: eruca
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "eruca.labels" -}}
{{ include "eruca.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "eruca.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "eruca.secret" -}}
{{ .Values.accounts.existingSecret | default (printf "%s-accounts" (include "eruca.name" .)) }}
{{- end -}}

{{/* Where brokers find the name servers. */}}
{{- define "eruca.nameservers" -}}
{{- if .Values.nameserver.addresses -}}
{{ join ";" .Values.nameserver.addresses }}
{{- else -}}
{{- $service := printf "%s-nameserver.%s.svc.%s" (include "eruca.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- $addresses := list -}}
{{- range $number := until (int .Values.nameserver.replicas) -}}
{{- $addresses = append $addresses (printf "%s-nameserver-%d.%s:9876" (include "eruca.name" $) $number $service) -}}
{{- end -}}
{{ join ";" $addresses }}
{{- end -}}
{{- end -}}

{{/* What both kinds of servers are told about accounts, TLS and metrics. */}}
{{- define "eruca.environment" -}}
- name: ERUCA_METRICS_PORT
  value: "5557"
- name: ERUCA_METRICS_BIND_ADDRESS
  value: 0.0.0.0
{{- if .Values.accounts.enabled }}
- name: ERUCA_METRICS_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "eruca.secret" . }}, key: metricsToken}}
- name: ERUCA_ACL_ENABLE
  value: "true"
- name: ERUCA_ACL_FILE
  value: /etc/eruca/accounts/plain_acl.yml
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: ERUCA_TLS_SERVER_MODE
  value: {{ .Values.tls.mode }}
- name: ERUCA_TLS_SERVER_CERT_PATH
  value: /etc/eruca/tls/tls.crt
- name: ERUCA_TLS_SERVER_KEY_PATH
  value: /etc/eruca/tls/tls.key
- name: ERUCA_TLS_ENABLE
  value: "true"
- name: ERUCA_TLS_CLIENT_TRUST_CERT_PATH
  value: /etc/eruca/tls/ca.crt
{{- end }}
{{- end -}}

{{- define "eruca.mounts" -}}
- name: data
  mountPath: /data
{{- if .Values.accounts.enabled }}
- name: accounts
  mountPath: /etc/eruca/accounts
  readOnly: true
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: tls
  mountPath: /etc/eruca/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "eruca.volumes" -}}
{{- if .Values.accounts.enabled }}
- name: accounts
  secret:
    secretName: {{ include "eruca.secret" . }}
    defaultMode: 0440
    items: [{key: plain_acl.yml, path: plain_acl.yml}]
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ .Values.tls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{/* A process is alive when its loop answers, and gets connections when it is ready. A long recovery counts as alive. */}}
{{- define "eruca.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics, scheme: {{ include "eruca.scheme" . }}}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics, scheme: {{ include "eruca.scheme" . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics, scheme: {{ include "eruca.scheme" . }}}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end -}}

{{- define "eruca.scheme" -}}
{{ if and .Values.tls.existingSecret (eq .Values.tls.mode "enforcing") }}HTTPS{{ else }}HTTP{{ end }}
{{- end -}}

{{- define "eruca.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "eruca.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* On different nodes if possible, unless the values have another rule. */}}
{{- define "eruca.affinity" -}}
{{- if .given }}
{{ toYaml .given }}
{{- else }}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "eruca.selector" .root | nindent 12 }}
            app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end -}}
