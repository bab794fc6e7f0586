{{- /*
The manifests under files/ are those of "lockstep install". These templates choose among them, and write the values
into them, as install does with its flags. Objects are changed in place.
*/ -}}

{{- /* Reports whether the API server has mutating policies. */ -}}
{{- define "lockstep.mutates" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}true{{ end }}
{{- end }}

{{- /* Reports whether an object protects PVCs: (object). */ -}}
{{- define "lockstep.ofProtection" -}}
{{- $labels := .metadata.labels | default dict }}
{{- if and (eq (get $labels "app.kubernetes.io/name") "lockstep") (eq (get $labels "app.kubernetes.io/component") "protection") }}true{{ end }}
{{- end }}

{{- /* Reports whether an object is part of this release: (list root object). */ -}}
{{- define "lockstep.wants" -}}
{{- $root := index . 0 }}{{- $object := index . 1 }}{{- $values := $root.Values }}
{{- $mutates := include "lockstep.mutates" $root | not | not }}
{{- $holds := dict
  "sets" (not $values.protectOnly)
  "image" $values.operator.enabled
  "service" (or (not $values.webhook.url) $values.operator.enabled)
  "certificates" (eq $values.certificates.source "Operator")
  "leaseReader" $values.leaseReader
  "crashLogs" (gt (int $values.crashLogLines) 0)
  "alone" $values.protection.alone
  "initialHold" (eq $values.protection.initialHold "Pending")
  "older" (not $mutates)
  "newer" $mutates }}
{{- $wanted := true }}
{{- range get ($object.metadata.annotations | default dict) "lockstep.dev/install-when" | splitList " " | compact }}
{{- if not (get $holds .) }}{{ $wanted = false }}{{ end }}
{{- end }}
{{- if and (hasPrefix "Mutating" $object.kind) (contains "AdmissionPolicy" $object.kind) (not $mutates) }}{{ $wanted = false }}{{ end }}
{{- if and (include "lockstep.ofProtection" $object) (not $values.protection.enabled) }}{{ $wanted = false }}{{ end }}
{{- if and (eq $object.kind "CustomResourceDefinition") $values.protectOnly }}{{ $wanted = false }}{{ end }}
{{- if $wanted }}true{{ end }}
{{- end }}

{{- /* Writes the values into an object and prints it: (list root object bundle). */ -}}
{{- define "lockstep.render" -}}
{{- $root := index . 0 }}{{- $object := index . 1 }}{{- $values := $root.Values }}
{{- $annotations := omit ($object.metadata.annotations | default dict) "lockstep.dev/install-when" }}
{{- if include "lockstep.ofProtection" $object }}
  {{- if and (eq $object.kind "ClusterRole") (eq $object.metadata.name "lockstep-protection-role") }}
    {{- $_ := set $annotations "lockstep.dev/protects-alone" (toString $values.protection.alone) }}
    {{- /* "lockstep uninstall" reads it after "helm uninstall". */ -}}
    {{- if $values.protection.alone }}{{ $_ := set $annotations "helm.sh/resource-policy" "keep" }}{{ end }}
    {{- include "lockstep.letRead" (list $root $object) }}
  {{- else }}
    {{- include "lockstep.chooseProtection" (list $root $object) }}
  {{- end }}
{{- end }}
{{- if eq $object.kind "Deployment" }}{{ include "lockstep.setOperator" (list $root $object) }}{{ end }}
{{- if hasSuffix "WebhookConfiguration" $object.kind }}
  {{- include "lockstep.setWebhooks" . }}
  {{- if eq $values.certificates.source "CertManager" }}
    {{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/lws-serving-cert" $root.Release.Namespace) }}
  {{- end }}
{{- end }}
{{- if eq $object.kind "CustomResourceDefinition" }}
  {{- include "lockstep.keepFields" (list $root $object) }}
  {{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
{{- end }}
{{- $_ := unset $object.metadata "annotations" }}
{{- with $annotations }}{{ $_ := set $object.metadata "annotations" . }}{{ end }}
{{- with merge (dict) ($object.metadata.labels | default dict) $values.extraLabels }}{{ $_ := set $object.metadata "labels" . }}{{ end }}
{{- if eq $object.kind "CustomResourceDefinition" }}
  {{- toYaml $object }}
{{- else }}
  {{- include "lockstep.rename" (list $root (toJson $object)) | fromJson | toYaml }}
{{- end }}
{{- end }}

{{- /* Prints JSON with the names of this release: (list root JSON). */ -}}
{{- define "lockstep.rename" -}}
{{- $root := index . 0 }}{{- $text := index . 1 }}{{- $names := $root.Values.names }}
{{- if $root.Values.protectOnly }}
  {{- $text = $text | replace "\"lws-controller-manager-metrics-service\"" "\"lockstep-metrics-service\"" }}
  {{- $text = regexReplaceAll "\"lws-(controller-manager|proxy-role|proxy-rolebinding|metrics-reader|metrics-reader-rolebinding|operator-[a-z]+)\"" $text "\"lockstep-${1}\"" }}
  {{- $text = $text | replace "\"lws\"" "\"lockstep\"" }}
{{- else }}
  {{- $text = regexReplaceAll "\"lws-((controller-manager|manager-role|leader-election-role|proxy-role|metrics-reader|certificates-role|lease-reader-|crash-logs-role|node-reader-role|leaderworkerset-)[a-z-]*)\"" $text (printf "\"%s-${1}\"" $names.prefix) }}
  {{- $text = $text | replace "\"app.kubernetes.io/instance\":\"lws\"" (printf "\"app.kubernetes.io/instance\":%s" (toJson $names.instance)) }}
{{- end }}
{{- $text | replace "\"lws-system\"" (toJson $root.Release.Namespace) }}
{{- end }}

{{- /* Name of the Deployment and of the objects beside it. */ -}}
{{- define "lockstep.name" -}}
{{ if .Values.protectOnly }}lockstep{{ else }}{{ .Values.names.prefix }}{{ end }}-controller-manager
{{- end }}

{{- /* Metadata of an object that "lockstep install" does not have: (list root name labels). */ -}}
{{- define "lockstep.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels: {{- merge (dict) (index . 2) $root.Values.extraLabels (include "lockstep.selector" $root | fromYaml) | toYaml | nindent 2 }}
{{- end }}

{{- /* Labels of the operator's pods. */ -}}
{{- define "lockstep.selector" -}}
control-plane: controller-manager
app.kubernetes.io/name: {{ if .Values.protectOnly }}lockstep{{ else }}lws{{ end }}
app.kubernetes.io/instance: {{ if .Values.protectOnly }}lockstep{{ else }}{{ toJson .Values.names.instance }}{{ end }}
{{- end }}

{{- /* Reports whether the operator reads its certificate from a Secret. Protection alone has no webhooks. */ -}}
{{- define "lockstep.mountsCertificate" -}}
{{- if and (ne .Values.certificates.source "Operator") (not .Values.protectOnly) }}true{{ end }}
{{- end }}

{{- /* The operator's Configuration. */ -}}
{{- define "lockstep.configuration" -}}
apiVersion: config.lws.x-k8s.io/v1alpha1
kind: Configuration
{{- with .Values.gangScheduler }}
gangSchedulingManagement:
  schedulerProvider: {{ . }}
{{- end }}
{{- if eq ((.Values.disruption).budget | toString) "Groups" }}
disruption:
  budget: Groups
{{- end }}
{{- with (.Values.rollout).progressDeadline }}
rollout:
  progressDeadline: {{ . | quote }}
{{- end }}
{{- with .Values.featureGates }}
featureGates: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if include "lockstep.mountsCertificate" . }}
internalCertManagement:
  enable: false
{{- end }}
{{- with .Values.webhook.clientCA }}
webhook:
  clientCA: {{ toJson . }}
{{- end }}
protection: {{- toYaml .Values.protection | nindent 2 }}
{{ end }}

{{- /* Arguments of the operator beyond those of its log, as a list in JSON. */ -}}
{{- define "lockstep.arguments" -}}
{{- $args := list "--config=/etc/lockstep/config.yaml" }}
{{- if .Values.protectOnly }}{{ $args = append $args "--protect-only" }}{{ end }}
{{- with .Values.crashLogLines }}{{ $args = append $args (printf "--crash-log-lines=%v" .) }}{{ end }}
{{- toJson $args }}
{{- end }}

{{- define "lockstep.image" -}}
{{- with .Values.image }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Writes the values into the Deployment: (list root object). */ -}}
{{- define "lockstep.setOperator" -}}
{{- $root := index . 0 }}{{- $spec := (index . 1).spec }}{{- $values := $root.Values }}
{{- $pod := $spec.template.spec }}{{- $operator := first $pod.containers }}
{{- $arguments := include "lockstep.arguments" $root | fromJsonArray }}
{{- $mark := printf "%q %s" $arguments (include "lockstep.configuration" $root) | sha256sum | trunc 16 }}
{{- $labels := $spec.template.metadata.labels }}
{{- $_ := set $spec.template.metadata "labels" (merge (dict "lockstep.dev/configuration" $mark) $labels $values.extraLabels) }}
{{- $_ := set $spec "replicas" $values.replicas }}
{{- range list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
  {{- $key := . }}
  {{- with get $values $key }}{{ $_ := set $pod $key . }}{{ end }}
{{- end }}
{{- $args := concat (list "run" (printf "--zap-log-level=%v" $values.log.level) (printf "--zap-encoder=%s" $values.log.format)) $arguments }}
{{- $_ := set $operator "image" (include "lockstep.image" $root) }}
{{- with $values.image.pullPolicy }}{{ $_ := set $operator "imagePullPolicy" . }}{{ end }}
{{- $_ := set $operator "args" $args }}
{{- $_ := set $operator "resources" $values.resources }}
{{- $mounts := list (dict "name" "lockstep-configuration" "mountPath" "/etc/lockstep" "readOnly" true) }}
{{- $volumes := list (dict "name" "lockstep-configuration" "configMap" (dict "name" "lockstep-configuration")) }}
{{- if include "lockstep.mountsCertificate" $root }}
  {{- $mounts = append $mounts (dict "name" "certificate" "mountPath" "/tmp/k8s-webhook-server/serving-certs" "readOnly" true) }}
  {{- $volumes = append $volumes (dict "name" "certificate" "secret" (dict "secretName" $values.certificates.secretName)) }}
{{- end }}
{{- $_ := set $operator "volumeMounts" $mounts }}
{{- $_ := set $pod "volumes" $volumes }}
{{- end }}

{{- /* Writes address and trusted certificates into webhooks: (list root object bundle). */ -}}
{{- define "lockstep.setWebhooks" -}}
{{- $values := (index . 0).Values }}{{- $object := index . 1 }}{{- $bundle := index . 2 }}
{{- $live := lookup "admissionregistration.k8s.io/v1" $object.kind "" $object.metadata.name | default dict }}
{{- range $hook := $object.webhooks }}
  {{- with $values.webhook.url }}
    {{- $_ := set $hook "clientConfig" (dict "url" (printf "%s%s" (trimSuffix "/" .) $hook.clientConfig.service.path)) }}
  {{- end }}
  {{- $trusted := list $bundle }}
  {{- if and (eq $values.certificates.source "Operator") (not $values.certificates.dropOlder) }}
    {{- $like := (index $object.webhooks 0).name }}{{- /* a new webhook trusts what the first one does */ -}}
    {{- range $live.webhooks }}{{ if eq .name $hook.name }}{{ $like = .name }}{{ end }}{{ end }}
    {{- range $live.webhooks }}{{ if eq .name $like }}
      {{- $trusted = append $trusted (include "lockstep.older" (list $bundle (.clientConfig.caBundle | default "" | b64dec))) }}
    {{- end }}{{ end }}
  {{- end }}
  {{- with join "" $trusted }}{{ $_ := set $hook.clientConfig "caBundle" (b64enc .) }}{{ end }}
{{- end }}
{{- include "lockstep.refuseForeign" (list (index . 0) $object $live) }}
{{- end }}

{{- /*
Refuses to take over a configuration with more webhooks: Helm would leave them, and nobody would write what they trust. It
removes those of its own release: (list root object live).
*/ -}}
{{- define "lockstep.refuseForeign" -}}
{{- $root := index . 0 }}{{- $object := index . 1 }}{{- $live := index . 2 }}
{{- $ours := list }}{{ range $object.webhooks }}{{ $ours = append $ours .name }}{{ end }}
{{- $more := list }}{{ range $live.webhooks }}{{ if not (has .name $ours) }}{{ $more = append $more (dict "$patch" "delete" "name" .name) }}{{ end }}{{ end }}
{{- $isOfRelease := and $root.Release.IsUpgrade (eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $live) $root.Release.Name) }}
{{- if and $more (not $isOfRelease) }}
  {{- fail (printf "Helm would leave webhooks of another implementation in %s %s, and calls of them would fail; first run: kubectl patch %[1]s %[2]s --patch '%s'" (lower $object.kind) $object.metadata.name (dict "webhooks" $more | toJson)) }}
{{- end }}
{{- end }}

{{- /* Prints two certificates of an earlier bundle that another lacks: replicas present theirs for a while. */ -}}
{{- define "lockstep.older" -}}
{{- $older := list }}
{{- range regexFindAll "-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----" (index . 1) -1 }}
  {{- if and (not (contains . (index $ 0))) (lt (len $older) 2) }}{{ $older = append $older (printf "\n%s" .) }}{{ end }}
{{- end }}
{{- join "" $older }}
{{- end }}

{{- /*
The certificate authority as JSON: bundle is its certificate, and secret that of the release, if it has one. An upgrade keeps
the authority that is in the cluster, until the last year of one that the chart made. A Secret that the release did not
create is its owner's.
*/ -}}
{{- define "lockstep.authority" -}}
{{- $given := .Values.certificates.caBundle }}{{- $result := dict "bundle" $given }}
{{- if and (eq .Values.certificates.source "Operator") (not .Values.protectOnly) }}
  {{- $live := lookup "v1" "Secret" .Release.Namespace "lws-webhook-authority" | default dict }}
  {{- if not $given }}{{ include "lockstep.chooseAuthority" (list . $live $result) }}{{ end }}
  {{- if and .Release.IsUpgrade $live (not $result.secret) (ne (dig "metadata" "annotations" "helm.sh/resource-policy" "" $live) "keep") }}
    {{- fail (printf "the release may have created the Secret lws-webhook-authority, which is yours now, and Helm would delete it; first run: kubectl --namespace %s annotate secret lws-webhook-authority helm.sh/resource-policy=keep" .Release.Namespace) }}
  {{- end }}
{{- end }}
{{- toJson $result }}
{{- end }}

{{- /* Finds or makes the authority: (list root Secret result). */ -}}
{{- define "lockstep.chooseAuthority" -}}
{{- $root := index . 0 }}{{- $live := index . 1 }}{{- $result := index . 2 }}
{{- if not (lookup "v1" "Namespace" "" "default") }}
  {{- fail "certificates: the chart sees no cluster, and would make another certificate authority each time; set certificates.caBundle, and create the Secret lws-webhook-authority; or set certificates.source=CertManager" }}
{{- end }}
{{- $data := $live.data | default dict }}{{- $annotations := dig "metadata" "annotations" dict $live }}
{{- $isOwn := or (not $live) (eq (toString (get $annotations "meta.helm.sh/release-name")) $root.Release.Name) }}
{{- $made := get $annotations "lockstep.dev/made" | default (dig "metadata" "creationTimestamp" "" $live) | default (now | date "2006-01-02") | trunc 10 }}
{{- if and (not (get $data "ca.crt")) (not $isOwn) }}
  {{- fail "the Secret lws-webhook-authority has no ca.crt, and is not of this release; delete it, or give it ca.crt and ca.key" }}
{{- else if or (not (get $data "ca.crt")) (and $isOwn (include "lockstep.isDue" (list $made (get $data "ca.crt" | b64dec)))) }}
  {{- $authority := genCAWithKey "lockstep-webhook-authority" 3650 (genPrivateKey "ecdsa") }}
  {{- $data = dict "ca.crt" (b64enc $authority.Cert) "ca.key" (b64enc $authority.Key) }}
  {{- $made = now | date "2006-01-02" }}
{{- end }}
{{- $_ := set $result "bundle" (get $data "ca.crt" | b64dec) }}
{{- if $isOwn }}{{ $_ := set $result "secret" (dict "data" $data "made" $made) }}{{ end }}
{{- end }}

{{- /* Reports whether an authority is the chart's or install's, and ends within a year: (list made file). */ -}}
{{- define "lockstep.isDue" -}}
{{- $der := index . 1 | regexFind "-----BEGIN CERTIFICATE-----[^-]*" | replace "-----BEGIN CERTIFICATE-----" "" | replace "\n" "" | b64dec }}
{{- if and (contains "lockstep-webhook-authority" $der) ((toDate "2006-01-02" (index . 0)).Before (now | dateModify "-78840h")) }}true{{ end }}
{{- end }}

{{- /* Lets the operator read workloads of configured kinds, whose plural is unknown: (list root object). */ -}}
{{- define "lockstep.letRead" -}}
{{- $role := index . 1 }}{{- $groups := list "disaggregatedset.x-k8s.io" "jobset.x-k8s.io" }}
{{- range (index . 0).Values.protection.kinds }}
  {{- $groups = append $groups (ternary (first (splitList "/" .apiVersion)) "" (contains "/" .apiVersion)) }}
{{- end }}
{{- range $groups | uniq | sortAlpha }}
  {{- $resources := ternary "*" "replicationcontrollers" (ne . "") }}
  {{- $_ := set $role "rules" (append $role.rules (dict "apiGroups" (list .) "resources" (list $resources) "verbs" (list "get" "list" "watch"))) }}
{{- end }}
{{- end }}

{{- /* Writes default mode, exempt namespaces and the initial hold into all parts of a policy: (list root part). */ -}}
{{- define "lockstep.chooseProtection" -}}
{{- $root := index . 0 }}{{- $part := index . 1 }}{{- $protection := $root.Values.protection }}
{{- if kindIs "slice" $part }}
  {{- range $part }}{{ include "lockstep.chooseProtection" (list $root .) }}{{ end }}
{{- else if kindIs "map" $part }}
  {{- if eq (toString (get $part "name")) "initialHold" }}
    {{- $_ := set $part "expression" (toString (eq $protection.initialHold "Pending")) }}
  {{- end }}
  {{- $key := toString (get $part "key") }}
  {{- if eq $key "kubernetes.io/metadata.name" }}
    {{- $_ := set $part "values" (append $protection.exemptNamespaces $root.Release.Namespace | uniq) }}
  {{- else if eq $key "protection.lockstep.dev/mode" }}
    {{- include "lockstep.chooseModes" (list (lower $protection.mode) $part) }}
  {{- end }}
  {{- range values $part }}{{ include "lockstep.chooseProtection" (list $root .) }}{{ end }}
{{- end }}
{{- end }}

{{- /* Keeps which modes a selector means. A namespace without a mode has the default: (list default selector). */ -}}
{{- define "lockstep.chooseModes" -}}
{{- $default := index . 0 }}{{- $selector := index . 1 }}{{- $meant := list }}{{- $others := list }}
{{- range list "off" "observe" "barrier" "hold" "strict" }}
  {{- if eq (has . $selector.values) (eq $selector.operator "In") }}{{ $meant = append $meant . }}{{ else }}{{ $others = append $others . }}{{ end }}
{{- end }}
{{- $isDefault := has $default $meant }}
{{- $_ := set $selector "operator" (ternary "NotIn" "In" $isDefault) }}
{{- $_ := set $selector "values" (ternary $others $meant $isDefault) }}
{{- end }}

{{- /* Flags of an operator outside the cluster: it listens at the address by which the API server calls it. */ -}}
{{- define "lockstep.runFlags" -}}
{{- if .Values.protectOnly }} --protect-only
{{- else }}
  {{- $url := urlParse .Values.webhook.url }}
  {{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default "443" }}
  {{- printf " --webhook-host %s" ($url.hostname | default "ADDRESS") }}
  {{- if and .Values.webhook.url (ne $port "9443") }} --webhook-port {{ $port }}{{ end }}
{{- end }}
{{- if ne .Release.Namespace "lws-system" }} --namespace {{ .Release.Namespace }}{{ end }} --leader-elect=false
{{- end }}
