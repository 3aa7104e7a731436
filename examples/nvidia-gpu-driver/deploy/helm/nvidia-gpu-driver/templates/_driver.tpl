{{/* What is special about this driver; the rest of a driver's objects is the same for all of them. */}}

{{/* Users' claims and selectors name it, so it is no value. */}}
{{- define "driver.driverName" -}}
gpu.nvidia.com
{{- end }}

{{/* What the driver's container is started with. */}}
{{- define "driver.args" -}}
[]
{{- end }}

{{- define "nvidia.driverRoot" -}}
{{ .Values.nvidiaDriverRoot | default "/" }}
{{- end }}

{{/* Environment variables of the driver's container, beside those that all drivers have. */}}
{{- define "driver.env" -}}
- name: NVIDIA_DRIVER_ROOT
  value: {{ include "nvidia.driverRoot" . }}
- name: CONTAINER_DRIVER_ROOT
  value: /driver-root
{{- with .Values.nvidiaCDIHookPath }}
- name: NVIDIA_CDI_HOOK_PATH
  value: {{ . }}
{{- end }}
- name: DYNAMIC_MIG
  value: {{ .Values.dynamicMig | default false | quote }}
- name: PASSTHROUGH
  value: {{ .Values.passthrough | default false | quote }}
{{- if kindIs "bool" .Values.checkProcesses }}
- name: CHECK_PROCESSES
  value: {{ .Values.checkProcesses | quote }}
{{- end }}
{{- if kindIs "bool" .Values.health }}
- name: HEALTH
  value: {{ .Values.health | quote }}
{{- end }}
{{- with .Values.pollInterval }}
- name: POLL_INTERVAL
  value: {{ . | quote }}
{{- end }}
{{- with .Values.additionalXidsToIgnore }}
- name: ADDITIONAL_XIDS_TO_IGNORE
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.forgiveXidsAfter }}
- name: FORGIVE_XIDS_AFTER
  value: {{ . | quote }}
{{- end }}
# Where NVIDIA's runtime is the node's default, it is not to bring GPUs into this container.
- name: NVIDIA_VISIBLE_DEVICES
  value: void
{{- end }}

{{/* Of the driver's pod, beside what all drivers have: it knows who uses a GPU past Kubernetes, and the daemons of MPS that an
earlier pod has started. */}}
{{- define "driver.podSpec" -}}
hostPID: true
{{- end }}

{{/* Folders of the node that the driver's container has, beside those that all drivers have: where it sees them, and
where they are. NVIDIA's driver may be installed later, and be mounted then. */}}
{{- define "driver.volumeMounts" -}}
- {name: driver-root, mountPath: /driver-root, readOnly: true, mountPropagation: HostToContainer}
# Shared memory of MPS's daemons is mounted below here, for containers to have it too.
- {name: mps, mountPath: {{ .Values.kubeletRoot }}/plugins/{{ include "driver.driverName" . }}/mps, mountPropagation: Bidirectional}
# Daemons of MPS leave the container's control group, so that they outlive the pod.
- {name: cgroups, mountPath: /sys/fs/cgroup}
{{- end }}
{{- define "driver.volumes" -}}
- name: driver-root
  hostPath: {path: {{ include "nvidia.driverRoot" . }}, type: DirectoryOrCreate}
- name: mps
  hostPath: {path: {{ .Values.kubeletRoot }}/plugins/{{ include "driver.driverName" . }}/mps, type: DirectoryOrCreate}
- name: cgroups
  hostPath: {path: /sys/fs/cgroup, type: Directory}
{{- end }}

{{/* What the driver may do with the API, beside what all drivers may: nothing. */}}
{{- define "driver.rules" -}}
{{- end }}
