package dist

import (
	"bytes"
	_ "embed"
	"os"
	"text/template"
)

// manifestName is the plugin's name in krew: its users write "kubectl krew install lockstep".
const manifestName = "lockstep.yaml"

//go:embed lockstep.yaml.tmpl
var manifestText string

// manifest writes the manifest of the plugin.
func (o Options) manifest(to string, plugins []archived) error {
	parsed, err := template.New(manifestName).Parse(manifestText)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, map[string]any{"Release": o, "Plugins": plugins}); err != nil {
		return err
	}
	return os.WriteFile(to, text.Bytes(), 0o644)
}
