{{- define "sixfold.labels" -}}
app.kubernetes.io/name: sixfold
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The labels of one role, from a list of the root and the role. */ -}}
{{- define "sixfold.selector" -}}
app.kubernetes.io/name: sixfold
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "sixfold.host" -}}
{{- regexReplaceAll "[:/].*$" (regexReplaceAll "^https?://" .Values.publicUrl "") "" -}}
{{- end }}

{{- /* What every container of the program has. */ -}}
{{- define "sixfold.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef: {name: {{ .Release.Name }}-settings}
  - secretRef: {name: {{ .Values.secrets }}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: data, mountPath: /srv/sixfold}
  - {name: temporary, mountPath: /tmp}
  - {name: server-key, mountPath: /srv/sixfold/server.key, subPath: server.key, readOnly: true}
{{- end }}

{{- /* What every pod of the program has, from a list of the root, the size of its cache and, if the pod calls the
       Kubernetes API, "token". */ -}}
{{- define "sixfold.pod" -}}
{{- $root := index . 0 -}}
automountServiceAccountToken: {{ has "token" . }}
terminationGracePeriodSeconds: {{ $root.Values.graceSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  # Both are caches: the database and the object store hold what must last.
  - name: data
    emptyDir: {sizeLimit: {{ index . 1 }}}
  - name: temporary
    emptyDir: {sizeLimit: {{ index . 1 }}}
  - name: server-key
    secret: {secretName: {{ $root.Values.serverKey }}, defaultMode: 0440}
{{- end }}

{{- /* The probes of a Ray container, from its port. Without them, KubeRay adds its own, which need ray[default] or
       wget in the image. */ -}}
{{- define "sixfold.rayProbes" -}}
readinessProbe:
  tcpSocket: {port: {{ . }}}
  periodSeconds: 5
livenessProbe:
  tcpSocket: {port: {{ . }}}
  initialDelaySeconds: 60
  periodSeconds: 10
  failureThreshold: 12
{{- end }}
