{{- define "mailwarden.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | replace "mailwarden-mailwarden" "mailwarden" | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "mailwarden.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "mailwarden.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "mailwarden.image" -}}
{{- required "image.repository must name where the image was pushed" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "mailwarden.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "mailwarden.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "mailwarden.environment" -}}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .Values.database.passwordSecret.name }}, key: {{ .Values.database.passwordSecret.key }}}
{{- end -}}

{{- /* The configuration folder of one process: its file, its certificate and the keys. */ -}}
{{- define "mailwarden.configuration" -}}
projected:
  defaultMode: 0440
  sources:
    - configMap:
        name: {{ include "mailwarden.name" .root }}
        items:
          - {key: {{ .component }}.yml, path: {{ .path }}}
    - secret:
        name: {{ .root.Values.secrets.tls }}
        items:
          - {key: ca.crt, path: tls/ca.crt}
          - {key: {{ .component }}.crt, path: tls/{{ .component }}.crt}
          - {key: {{ .component }}.key, path: tls/{{ .component }}.key}
    - secret:
        name: {{ .root.Values.secrets.keys }}
        items:
          - {key: contents, path: secrets/contents}
          {{- if eq .component "abby" }}
          - {key: pepper, path: secrets/pepper}
          {{- end }}
    {{- with .root.Values.secrets.s3 }}
    - secret:
        name: {{ . }}
        items:
          - {key: s3, path: secrets/s3}
    {{- end }}
{{- end -}}

{{- define "mailwarden.quarantine" -}}
{{- $keys := dict "store" .Values.quarantine.store -}}
{{- if not .Values.quarantine.store -}}{{- $keys = dict "store" "/var/lib/mailwarden/quarantine" -}}{{- end -}}
{{- with .Values.quarantine.endpoint -}}{{- $_ := set $keys "endpoint" . -}}{{- end -}}
{{- with .Values.quarantine.region -}}{{- $_ := set $keys "region" . -}}{{- end -}}
{{- toJson $keys -}}
{{- end -}}

{{- define "mailwarden.guardKind" -}}
{{- if .Values.guard.journalVolume.enabled -}}StatefulSet{{- else -}}Deployment{{- end -}}
{{- end -}}

{{- define "mailwarden.guardSettings" -}}
{{- if and (hasKey .Values.guard.scanSources "smtp") (not .Values.quarantine.store) -}}
{{- fail "guard.scanSources.smtp needs quarantine.store: a pod's own disk would lose held messages" -}}
{{- end -}}
{{- $engines := dict "rspamd" (dict "address" .Values.engines.rspamd.address) "clamav" (dict "address" .Values.engines.clamav.address) -}}
{{- with .Values.engines.dns.servers -}}{{- $_ := set $engines "dns" (dict "servers" .) -}}{{- end -}}
{{- $keys := dict
  "scanSources" .Values.guard.scanSources
  "mainWorkerCount" .Values.guard.mainWorkerCount
  "shutdownGracePeriod" (mul 1000 (sub .Values.guard.terminationGracePeriodSeconds 10))
  "listen" (dict "host" "0.0.0.0" "port" 9785)
  "health" (dict "host" "0.0.0.0" "port" 9786)
  "engines" $engines
  "quarantine" (include "mailwarden.quarantine" . | fromJson)
  "database" (dict "url" .Values.database.url)
  "spool" "/var/spool/mailwarden"
  "lists" (dict "replica" "/var/lib/mailwarden/lists")
  "journal" (dict "folder" "/var/lib/mailwarden/journal" "maxBytes" (int64 .Values.guard.journalMaxBytes) "persistent" .Values.guard.journalVolume.enabled) -}}
{{- toYaml (mustMergeOverwrite $keys .Values.guard.settings) -}}
{{- end -}}

{{- define "mailwarden.abbySettings" -}}
{{- $guards := printf "https://%s-guard:9785" (include "mailwarden.name" .) -}}
{{- $keys := dict
  "serviceProviders" (dict "core" (dict "hosts" (list $guards)))
  "staticApiTokens" .Values.abby.staticApiTokens
  "shutdownGracePeriod" (mul 1000 (sub .Values.abby.terminationGracePeriodSeconds 10))
  "listen" (dict "host" "0.0.0.0" "port" 9081)
  "quarantine" (include "mailwarden.quarantine" . | fromJson)
  "database" (dict "url" .Values.database.url)
  "spool" "/var/spool/mailwarden" -}}
{{- toYaml (mustMergeOverwrite $keys .Values.abby.settings) -}}
{{- end -}}
