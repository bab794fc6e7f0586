{{- /*
A CustomResourceDefinition that lacks a field makes the API server remove the field from each object at its next write.
So the chart compares definitions before Helm writes anything, as "lockstep install" does.
*/ -}}

{{- /* Refuses values that do not fit together, and releases that would lose objects or fields. */ -}}
{{- define "lockstep.refuse" -}}
{{- $values := .Values }}
{{- if and $values.operator.enabled (not $values.image.repository) }}
  {{- fail "image.repository: name the operator's image, or set operator.enabled=false and webhook.url" }}
{{- end }}
{{- if and (eq $values.certificates.source "Secret") (not $values.certificates.caBundle) }}
  {{- fail "certificates.caBundle: required where certificates.source is Secret" }}
{{- end }}
{{- if and (eq $values.metrics.monitor "PodMonitor") (not $values.metrics.tokenSecret.name) }}
  {{- fail "metrics.tokenSecret.name: required where metrics.monitor is PodMonitor" }}
{{- end }}
{{- if and $values.protectOnly (not $values.protection.enabled) }}
  {{- fail "protectOnly: with protection.enabled=false nothing is left to install; drop one of them" }}
{{- end }}
{{- include "lockstep.refuseDeletion" . }}
{{- end }}

{{- /*
Refuses an upgrade that would delete definitions of the release's previous chart, which protection alone has not: with them
all their objects go, and what these own.
*/ -}}
{{- define "lockstep.refuseDeletion" -}}
{{- if .Values.protectOnly }}{{ range list "leaderworkersets.leaderworkerset.x-k8s.io" "disaggregatedsets.disaggregatedset.x-k8s.io" "disaggregatedsetrolescalers.disaggregatedset.x-k8s.io" }}
  {{- $annotations := (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .).metadata | default dict | dig "annotations" dict }}
  {{- $isOfRelease := and $.Release.IsUpgrade (eq (toString (get $annotations "meta.helm.sh/release-name")) $.Release.Name) }}
  {{- if and $isOfRelease (ne (get $annotations "helm.sh/resource-policy") "keep") }}
    {{- fail (printf "this upgrade would delete customresourcedefinition.apiextensions.k8s.io/%s and every object of it; first run: kubectl annotate crd %[1]s helm.sh/resource-policy=keep; Helm reads this annotation in the cluster" .) }}
  {{- end }}
{{- end }}{{ end }}
{{- end }}

{{- /* Keeps the fields that the live definition has besides, or refuses to lose them: (list root definition). */ -}}
{{- define "lockstep.keepFields" -}}
{{- $root := index . 0 }}{{- $definition := index . 1 }}
{{- $live := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $definition.metadata.name }}
{{- $lost := dict }}
{{- range $stored := ($live.spec | default dict).versions }}
  {{- $ours := dict }}
  {{- range $definition.spec.versions }}{{ if eq .name $stored.name }}{{ $ours = .schema.openAPIV3Schema }}{{ end }}{{ end }}
  {{- if $root.Values.crds.keepFields }}
    {{- include "lockstep.addProperties" (list $ours $stored.schema.openAPIV3Schema) }}
  {{- else if $stored.storage }}
    {{- include "lockstep.lost" (dict "live" $stored.schema.openAPIV3Schema "ours" $ours "at" "" "lost" $lost) }}
    {{- range (lookup (printf "%s/%s" $definition.spec.group $stored.name) $definition.spec.names.kind "" "").items }}
      {{- include "lockstep.pruned" (dict "value" .spec "ours" (dig "properties" "spec" dict $ours) "at" "spec" "lost" $lost) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- with $lost }}
  {{- fail (printf "customresourcedefinition.apiextensions.k8s.io/%s in the cluster has %d fields that this version of Lockstep lacks, and replacing it would remove them from every object:\n  %s\nnothing was changed; use a version of Lockstep that has these fields, or keep them, and leave alone the sets that use them: --set crds.keepFields=true" $definition.metadata.name (len .) (keys . | sortAlpha | join "\n  ")) }}
{{- end }}
{{- end }}

{{- /*
Collects the properties of a schema that another lacks: (dict live ours at lost). It does not descend into the schemas
of Kubernetes, which differ with its version: of those only what sets use counts.
*/ -}}
{{- define "lockstep.lost" -}}
{{- if not (include "lockstep.keepsAnything" .ours) }}
  {{- range $name, $live := get .live "properties" | default dict }}
    {{- $at := trimPrefix "." (printf "%s.%s" $.at $name) }}
    {{- $ours := dig "properties" $name (get $.ours "additionalProperties") $.ours }}
    {{- if not (kindIs "map" $ours) }}{{ $_ := set $.lost $at true }}{{ $ours = dict }}{{ end }}
    {{- if not (regexMatch "^(apiVersion|kind|metadata|spec\\.(roles\\[\\]\\.spec\\.)?leaderWorkerTemplate\\.((leader|worker)Template|volumeClaimTemplates))$" $at) }}
      {{- include "lockstep.lost" (dict "live" $live "ours" $ours "at" $at "lost" $.lost) }}
    {{- end }}
  {{- end }}
  {{- range $field, $step := dict "items" "[]" "additionalProperties" ".*" }}
    {{- $live := get $.live $field }}
    {{- if kindIs "map" $live }}
      {{- include "lockstep.lost" (dict "live" $live "ours" (get $.ours $field | default dict) "at" (print $.at $step) "lost" $.lost) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Collects the fields of a value that the API server prunes under a schema: (dict value ours at lost). */ -}}
{{- define "lockstep.pruned" -}}
{{- if not (include "lockstep.keepsAnything" .ours) }}
  {{- if kindIs "slice" .value }}
    {{- range .value }}
      {{- include "lockstep.pruned" (dict "value" . "ours" (get $.ours "items" | default dict) "at" (print $.at "[]") "lost" $.lost) }}
    {{- end }}
  {{- else if kindIs "map" .value }}
    {{- range $name, $value := .value }}
      {{- $at := printf "%s.%s" $.at $name }}
      {{- $ours := dig "properties" $name (get $.ours "additionalProperties") $.ours }}
      {{- if not (kindIs "map" $ours) }}{{ $_ := set $.lost $at true }}{{ $ours = dict }}{{ end }}
      {{- include "lockstep.pruned" (dict "value" $value "ours" $ours "at" $at "lost" $.lost) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Reports whether the API server prunes nothing below a schema. */ -}}
{{- define "lockstep.keepsAnything" -}}
{{- if or (get . "x-kubernetes-preserve-unknown-fields") (eq (toString (get . "additionalProperties")) "true") }}true{{ end }}
{{- end }}

{{- /* Adds to a schema, at every depth, the properties that it lacks: (list schema live). */ -}}
{{- define "lockstep.addProperties" -}}
{{- $into := index . 0 }}{{- $from := index . 1 }}{{- $have := get $into "properties" }}
{{- if kindIs "map" $have }}
  {{- range $name, $property := get $from "properties" | default dict }}
    {{- if not (hasKey $have $name) }}
      {{- $_ := set $have $name $property }}
    {{- else }}
      {{- include "lockstep.addProperties" (list (get $have $name) $property) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range list "items" "additionalProperties" }}
  {{- if and (kindIs "map" (get $into .)) (kindIs "map" (get $from .)) }}
    {{- include "lockstep.addProperties" (list (get $into .) (get $from .)) }}
  {{- end }}
{{- end }}
{{- end }}
