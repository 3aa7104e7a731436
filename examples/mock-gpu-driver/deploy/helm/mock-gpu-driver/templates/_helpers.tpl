{{/* Names and pieces of objects, whichever the driver. What is special about this one is in _driver.tpl. */}}

{{- define "driver.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* What the names of all objects start with. An ending of 20 letters still fits. */}}
{{- define "driver.fullname" -}}
{{- $name := include "driver.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 43 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 43 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 43 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "driver.labels" -}}
{{ include "driver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "driver.selector" -}}
app.kubernetes.io/name: {{ include "driver.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "driver.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The account that the API server sees in requests of a service account of this release. */}}
{{- define "driver.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "driver.fullname" . }}
{{- end }}

{{/* What all containers of the chart are told. */}}
{{- define "driver.commonEnv" -}}
- name: DRIVER_NAME
  value: {{ include "driver.driverName" . }}
- name: LOG_FORMAT
  value: {{ (.Values.log).format | default "text" }}
- name: RUST_LOG
  value: {{ (.Values.log).level | default "info" | quote }}
{{- end }}

{{/* What containers that are no driver may: nothing. */}}
{{- define "driver.unprivileged" -}}
runAsNonRoot: true
runAsUser: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where pods go: called with the values that have nodeSelector, tolerations and affinity. */}}
{{- define "driver.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
