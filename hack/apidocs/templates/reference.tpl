{{- define "gvList" -}}
<!-- Made by "make generate" of the types in api/. Do not edit. -->
# API reference

Every field of every kind, with its default and what it means. Where a dash stands for the default,
there is none or the text names it; the field may be left out.
{{ range . }}
- {{ markdownRenderGVLink . }}
{{- end }}
{{ range . }}{{ template "gvDetails" . }}{{ end -}}
{{- end -}}

{{- define "gvDetails" }}
## {{ .GroupVersionString }}
{{ range .SortedKinds }}{{ template "type" $.TypeForKind . }}{{ end -}}
{{ range .SortedTypes }}{{ if not .GVK }}{{ template "type" . }}{{ end }}{{ end -}}
{{ end -}}

{{- define "type" }}{{ if markdownShouldRenderType . }}
### {{ .Name }}

{{ .Doc }}
{{ with .SortedReferences }}
Found in {{ range $i, $in := . }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $in }}{{ end }}.
{{ end }}{{ if .Members }}
| field | type | default | meaning |
| --- | --- | --- | --- |
{{ if .GVK -}}
| `apiVersion` | string | required | `{{ .GVK.Group }}/{{ .GVK.Version }}` |
| `kind` | string | required | `{{ .GVK.Kind }}` |
{{ end -}}
{{ range .Members -}}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ template "default" . }} | {{ template "meaning" .Doc }}{{ template "limits" . }} |
{{ end -}}
{{ end }}{{ if .EnumValues }}
| value | meaning |
| --- | --- |
{{ range .EnumValues -}}
| `{{ .Name }}` | {{ template "meaning" .Doc }} |
{{ end -}}
{{ end }}{{ end }}{{ end -}}

{{- define "default" -}}
{{ if has "Required: {}" .Validation }}required{{ else if .Default }}`{{ .Default }}`{{ else }}–{{ end }}
{{- end -}}

{{- define "meaning" -}}
{{ . | trim | replace "\n" " " | markdownRenderFieldDoc }}
{{- end -}}

{{- define "limits" -}}
{{ range .Validation -}}
{{ if hasPrefix "Minimum: " . }} At least {{ trimPrefix "Minimum: " . }}.{{ end -}}
{{ if hasPrefix "Maximum: " . }} At most {{ trimPrefix "Maximum: " . | replace "1e+06" "1000000" }}.{{ end -}}
{{ if hasPrefix "MaxItems: " . }} At most {{ trimPrefix "MaxItems: " . }}.{{ end -}}
{{ end -}}
{{- end -}}
