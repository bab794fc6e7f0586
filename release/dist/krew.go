package dist

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// manifestName is the plugin's name in krew: its users write "kubectl krew install lockstep".
const manifestName = "lockstep.yaml"

// manifest is a plugin of krew, as far as it is needed here.
type manifest struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Name string `json:"name"`
}

type spec struct {
	Version          string     `json:"version"`
	Homepage         string     `json:"homepage"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Platforms        []platform `json:"platforms"`
}

type platform struct {
	Selector selector `json:"selector"`
	URI      string   `json:"uri"`
	SHA256   string   `json:"sha256"`
	Bin      string   `json:"bin"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

func (o Options) platform(of, file, digest string) platform {
	system, architecture, _ := strings.Cut(of, "_")
	return platform{
		Selector: selector{map[string]string{"os": system, "arch": architecture}},
		URI:      o.URL + "/" + file, SHA256: digest, Bin: plugin,
	}
}

// manifest returns the manifest of the plugin.
func (o Options) manifest(platforms []platform) ([]byte, error) {
	return yaml.Marshal(manifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: metadata{"lockstep"},
		Spec: spec{
			Version: o.Version, Homepage: "https://lockstep.dev",
			ShortDescription: "Show and roll out LeaderWorkerSets, explain PVCs",
			Description: "Shows the groups of a LeaderWorkerSet, what its operator would do next and why,\n" +
				"rolls it out and back, and explains why a PersistentVolumeClaim is not deleted.\n",
			Platforms: platforms,
		},
	})
}
