{{- define "merlot.name" -}}
{{- if contains "merlot" .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-merlot" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "merlot.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/name: merlot
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Of pods of one component: (list . "operator") */}}
{{- define "merlot.selector" -}}
app.kubernetes.io/name: merlot
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* (list . "operator") */}}
{{- define "merlot.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{- $root.Values.images.registry }}{{ $image.repository }}:{{ $image.tag | default $root.Values.images.tag | default $root.Chart.AppVersion -}}
{{- end -}}

{{/* Namespaces served, comma-separated; empty for all. */}}
{{- define "merlot.namespaces" -}}
{{- if not .Values.scope.clusterWide -}}
{{- .Values.scope.namespaces | default (list .Release.Namespace) | join "," -}}
{{- end -}}
{{- end -}}

{{- define "merlot.metastore" -}}
{{- $chroot := printf "/%s" (trimAll "/" .Values.zookeeper.chroot) -}}
{{- if .Values.zookeeper.bundled -}}
zk://{{ include "merlot.name" . }}-zookeeper.{{ .Release.Namespace }}.svc:2181{{ $chroot }}
{{- else -}}
zk://{{ required "zookeeper.address: name your ZooKeeper, or set zookeeper.bundled" .Values.zookeeper.address }}{{ $chroot }}
{{- end -}}
{{- end -}}

{{- define "merlot.secret" -}}
{{- if .Values.deepStore.secret -}}{{ .Values.deepStore.secret }}
{{- else if .Values.deepStore.credentials -}}{{ include "merlot.name" . }}-deep-store
{{- end -}}
{{- end -}}

{{/* Whether Tables may say of their pods whatever Kubernetes takes. */}}
{{- define "merlot.podTemplates" -}}{{ ternary "unrestricted" "restricted" .Values.podTemplates.unrestricted }}{{- end -}}

{{- define "merlot.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "merlot.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "merlot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}
