package operator

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"lockstep.dev/lockstep/api/config/v1alpha1"
)

// LoadConfig reads the configuration file at path, in YAML or JSON, and sets the defaults.
// Without a path it returns the defaults. An unknown or repeated field is an error.
func LoadConfig(path string) (*v1alpha1.Configuration, error) {
	if path == "" {
		return ParseConfig(nil)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	config, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("configuration %q: %w", path, err)
	}
	return config, nil
}

// ParseConfig reads the text of a configuration and sets the defaults. Nil is the defaults
// alone.
func ParseConfig(text []byte) (config *v1alpha1.Configuration, err error) {
	config = &v1alpha1.Configuration{}
	if text != nil {
		if config, err = decodeConfig(text); err != nil {
			return nil, err
		}
	}
	v1alpha1.SetDefaults(config)
	return config, nil
}

func decodeConfig(text []byte) (*v1alpha1.Configuration, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	decoded, _, err := codecs.UniversalDeserializer().Decode(text, nil, nil)
	switch {
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err), runtime.IsNotRegisteredError(err):
		return nil, errors.New("wants apiVersion: " + v1alpha1.GroupVersion.String() + " and kind: Configuration")
	case err != nil:
		return nil, err
	}
	config, ok := decoded.(*v1alpha1.Configuration)
	if !ok {
		return nil, fmt.Errorf("holds a %T, not a Configuration", decoded)
	}
	return config, nil
}
