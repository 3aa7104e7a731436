{{/* What is special about this driver; the rest of a driver's objects is the same for all of them. */}}

{{- define "driver.driverName" -}}
{{ .Values.driverName | default (printf "%s.example.com" .Values.deviceProfile) }}
{{- end }}

{{/* What the driver's container is started with. */}}
{{- define "driver.args" -}}
[run]
{{- end }}

{{/* Environment variables of the driver's container, beside those that all drivers have. */}}
{{- define "driver.env" -}}
- name: DEVICE_PROFILE
  value: {{ .Values.deviceProfile }}
{{- if not (kindIs "invalid" .Values.numDevices) }}
- name: NUM_DEVICES
  value: {{ .Values.numDevices | quote }}
{{- end }}
{{- with (.Values.gpu).partitions }}
- name: GPU_PARTITIONS
  value: {{ . | quote }}
{{- end }}
{{- if (.Values.gpu).allowMultipleAllocations }}
- name: GPU_ALLOW_MULTIPLE_ALLOCATIONS
  value: "true"
{{- end }}
{{- if (.Values.gpu).bindingConditions }}
- name: BINDING_CONDITIONS
  value: "true"
{{- end }}
{{- with .Values.taintUnhealthy }}
- name: TAINT_UNHEALTHY
  value: {{ . }}
{{- end }}
{{- if .Values.healthAnnotations }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: HEALTH_POD
  value: {{ .Release.Namespace }}/$(POD_NAME)
{{- end }}
{{- end }}

{{/* Of the driver's pod, beside what all drivers have: nothing. */}}
{{- define "driver.podSpec" -}}
{{- end }}

{{/* Folders of the node that the driver's container has, beside those that all drivers have: where it sees them, and
where they are. */}}
{{- define "driver.volumeMounts" -}}
{{- end }}
{{- define "driver.volumes" -}}
{{- end }}

{{/* What the driver may do with the API, beside what all drivers may: it writes its entries in the status of claims. */}}
{{- define "driver.rules" -}}
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/status]
  verbs: [patch]
# Since Kubernetes 1.36 the entries of a driver in the status of claims take this, too: here for claims that are
# allocated on the node of the pod that the token is for.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaims/driver]
  resourceNames: [{{ include "driver.driverName" . }}]
  verbs: ["associated-node:patch"]
{{- end }}

{{/* The Secret with the webhook's certificate. */}}
{{- define "driver.webhookSecret" -}}
{{- $certificate := .Values.webhook.certificate | default dict -}}
{{- if eq ($certificate.source | default "selfSigned") "secret" -}}
{{ required "webhook.certificate.secretName has to name the Secret that source: secret speaks of" $certificate.secretName }}
{{- else -}}
{{ include "driver.fullname" . }}-webhook
{{- end -}}
{{- end }}
